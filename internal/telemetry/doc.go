// Package telemetry is what a process shows of itself to its operator: the internal listener with
// /livez, /readyz, /metrics, /statusz and /debug/pprof.
//
// It owns no state. Readiness and status are functions that the process gives it; a request calls
// them, so what a page shows is true at the moment of the request. /livez answers as long as the
// process can answer at all: an orchestrator restarts on it, and a restart helps against nothing else.
// /readyz answers 503 with one line a reason.
//
// The listener carries profiles and internals and no authentication: it belongs on loopback or a
// private network, never on the public one.
package telemetry
