package main

import (
	"net"
	"os"
	"testing"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// Whatever the host is called, a default name is one that a process, and a notifier with its prefix, may have.
func TestDefaultNameIsAName(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name := instanceName("", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9080})
	if _, err := protocol.ParseInstanceName(relay.NotifierPrefix + name); err != nil {
		t.Errorf("name of host %q: %v", host, err)
	}
	if len(name) < len("-9080") || name[len(name)-len("-9080"):] != "-9080" {
		t.Errorf("name %q of host %q lacks the port", name, host)
	}
	if got := instanceName("mine", nil); got != "mine" {
		t.Errorf("a given name became %q", got)
	}
}

func TestLongHostNamesKeepTheirEnd(t *testing.T) {
	t.Parallel()
	long := "a-very-long-host-name.of-some-cloud.in-some-region.internal.example-é"
	name := fitName(long + "-8080")
	if _, err := protocol.ParseInstanceName(relay.NotifierPrefix + name); err != nil {
		t.Error(err)
	}
	if want := "example---8080"; name[len(name)-len(want):] != want {
		t.Errorf("got %q, want its end to be %q", name, want)
	}
}
