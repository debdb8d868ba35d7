package testkit

import "syscall"

// endWithParent has the kernel kill the child when its parent dies, also by SIGKILL.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
