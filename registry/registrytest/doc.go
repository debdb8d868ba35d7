// Package registrytest is the conformance suite of package registry: what its
// scripts must do on every Redis that lastmile may meet. The embedded server and
// a real one pass the same suite.
//
// Every test uses users of its own, so the server need not be empty, and may be
// shared.
package registrytest
