// Package e2e holds the tests that run the real binary: processes that are started as an operator
// starts them, spoken to over their ports, and killed. It exports nothing.
//
// The client of these tests is written from the protocol's description alone and shares no code with
// the server, so a mistake in our codec can't hide in both ends. Servers come from internal/testkit:
// real ones where they are found, embedded ones elsewhere.
package e2e
