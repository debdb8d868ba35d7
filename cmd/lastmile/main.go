package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the whole command line: one field a subcommand, one file each.
type commands struct {
	Log logFlags `embed:"" prefix:"log-" group:"Logging"`

	Dev         devCommand         `cmd:"" help:"Run everything in one process: embedded Redis and MongoDB, a relay, a notifier, two socket servers and the chat."`
	Socket      socketCommand      `cmd:"" help:"Run a socket server: WebSocket sessions and the publish API."`
	Relay       relayCommand       `cmd:"" help:"Run a relay: outbox to the inboxes of the socket servers."`
	Notify      notifyCommand      `cmd:"" help:"Run a notifier: what reached nobody goes to a webhook, or to the log."`
	Chat        chatCommand        `cmd:"" help:"Run the example application: chat page and backend."`
	Embedded    embeddedCommand    `cmd:"" help:"Serve the embedded Redis and MongoDB for several local processes (to try and test, not to keep data)."`
	Publish     publishCommand     `cmd:"" help:"Insert one event into the outbox."`
	Token       tokenCommand       `cmd:"" help:"Mint a token for development."`
	Healthcheck healthcheckCommand `cmd:"" help:"Ask a process whether it is ready; exit status 0 if so."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
}

// streams are the process' outputs, passed in so that tests can read them.
type streams struct {
	out io.Writer
	err io.Writer
}

func main() {
	// The first signal asks for a clean end. After it the default handling is back, so the second
	// one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], streams{out: os.Stdout, err: os.Stderr}))
}

// run executes one command line and returns the exit status: 0 done, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, std streams) int {
	var cli commands
	exit := -1
	parser, err := kong.New(&cli,
		kong.Name("lastmile"),
		kong.Description("From an event committed in MongoDB to every browser of every recipient: in order, once, and certainly.\n\nEvery flag can also be set by an environment variable: LASTMILE_ and the flag's name in capitals, with _ for -."),
		kong.DefaultEnvars("LASTMILE"),
		kong.Vars{"devTokenSecret": devTokenSecret, "devRedis": devRedis, "devMongo": devMongo},
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
	)
	if err != nil {
		fmt.Fprintf(std.err, "lastmile: build the command line: %v\n", err)
		return 1
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 { // --help has printed what was asked for
		return exit
	}
	if err != nil {
		usageError(std.err, err)
		return 2
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	logger, err := cli.Log.logger(std.err)
	if err != nil {
		usageError(std.err, err)
		return 2
	}
	if err := parsed.Run(logger, std); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(std.err, "lastmile %s: %v\n", parsed.Command(), err)
		return 1
	}
	return 0
}

// usageError says what is wrong with the command line and where the right one is described.
func usageError(w io.Writer, err error) {
	help := "lastmile --help"
	var wrong *kong.ParseError
	if errors.As(err, &wrong) && wrong.Context != nil && wrong.Context.Command() != "" {
		help = "lastmile " + wrong.Context.Command() + " --help"
	}
	fmt.Fprintf(w, "lastmile: %v\nRun \"%s\" for the flags.\n", err, help)
}
