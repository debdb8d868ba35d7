// Package codes holds the table of close codes and error codes, and renders it for Go, for the browser
// client and for the docs. Nothing imports it at run time.
//
// A new code is a new line here and `go generate ./protocol`. Numbers and texts of codes that were
// released never change: clients compare them.
package codes
