//go:build !linux

package testkit

import "syscall"

// endWithParent has no counterpart here: a child of a killed test binary stays.
func endWithParent(*syscall.SysProcAttr) {}
