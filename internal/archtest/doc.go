// Package archtest holds the rules of who may import whom, as a test over the source tree. Nothing imports it.
//
// It owns the table of arrows between packages, the fence round the MongoDB driver, and the list of
// modules that only tests may use. It promises that every import of every file of the module is judged,
// files for other operating systems included, and that a package which is in no row of the table fails:
// a new package says what it may import before it is merged. It does not judge what code does.
//
// When it fails: move the code to where the arrow already goes, or change the table and say why in the change.
package archtest
