// Command lastmile is the whole system in one binary, a subcommand for each part: the socket server,
// the relay, the example application, the embedded servers, and the tools around them. `lastmile dev`
// runs all of it in one process.
//
// A command composes the parts' Run methods and owns nothing else: it reads flags, opens listeners and
// clients, starts the parts, and ends them in the order in which they depend on each other. The first
// SIGTERM or SIGINT ends cleanly, the second at once. Configuration errors, an unreachable server or
// one that is too old end the command before it has started anything, with one line that says what to
// do; exit status 2 is wrong usage, 1 everything else.
package main
