//go:build race

package e2e_test

const slowdown = 3 // of a process built with the race detector
