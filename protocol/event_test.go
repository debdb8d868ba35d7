package protocol_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestOrderingKey_keyThenSubjectThenFirstRecipient(t *testing.T) {
	t.Parallel()
	e := event()
	e.Key = "order:1"
	for _, want := range []string{"order:1", "room:42", "alice", ""} {
		if got := e.OrderingKey(); got != want {
			t.Errorf("ordering key %q, want %q", got, want)
		}
		switch want {
		case "order:1":
			e.Key = ""
		case "room:42":
			e.Subject = ""
		case "alice":
			e.To = nil
		}
	}
}

// The values are FNV-1a 32 as published by its authors ("" 811c9dc5, "a" e40c292c, "foobar" bf9cf968),
// shifted by one: publishers in other languages compute the same.
func TestPartitionHash_isFNV1a(t *testing.T) {
	t.Parallel()
	for key, sum := range map[string]uint32{"a": 0xe40c292c, "foobar": 0xbf9cf968} {
		e := &protocol.Event{Key: key}
		if got := e.PartitionHash(); got != int32(sum>>1) {
			t.Errorf("hash of %q is %#x, want %#x", key, got, sum>>1)
		}
	}
	negative, set := int32(-5), int32(77)
	e := &protocol.Event{Key: "a", Hash: &set}
	if got := e.PartitionHash(); got != 77 {
		t.Errorf("a set hash gives %d", got)
	}
	e.Hash = &negative
	if got := e.PartitionHash(); got != 0xe40c292c>>1 {
		t.Errorf("a negative hash counts: %d", got)
	}
}

func TestPartition_staysInRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		hash, n := rapid.Int32().Draw(t, "hash"), rapid.IntRange(-1, 64).Draw(t, "n")
		got := protocol.Partition(hash, n)
		if got < 0 || got >= max(n, 1) {
			t.Fatalf("Partition(%d, %d) = %d", hash, n, got)
		}
		if hash >= 0 && n > 0 && got != int(hash)%n {
			t.Fatalf("Partition(%d, %d) = %d, want hash mod n", hash, n, got)
		}
	})
	if got := protocol.Partition(math.MinInt32, 4); got != 0 {
		t.Errorf("the least hash falls to %d", got)
	}
}

func TestPrepare_completesAndDedups(t *testing.T) {
	t.Parallel()
	callers := []protocol.UserID{"bob", "alice", "bob", "carol", "alice"}
	e := &protocol.Event{To: callers, Type: "t", Data: []byte(`{}`), ExpiresAt: testTime}
	e.Prepare()
	if want := []protocol.UserID{"bob", "alice", "carol"}; !slices.Equal(e.To, want) {
		t.Errorf("recipients %v, want %v", e.To, want)
	}
	if callers[2] != "bob" {
		t.Error("the caller's own list was rearranged")
	}
	if e.ID.IsZero() || time.Since(e.Time) > time.Minute || e.Time.Nanosecond()%1e6 != 0 {
		t.Errorf("id %s, time %s", e.ID, e.Time)
	}
	if e.Hash == nil || *e.Hash != (&protocol.Event{Key: "bob"}).PartitionHash() {
		t.Errorf("hash %v is not that of the first recipient", e.Hash)
	}
	if got := e.ExpiresAt; got.Nanosecond() != 89e6 || got.Location() != time.UTC {
		t.Errorf("expiresAt %s keeps what MongoDB can't", got)
	}
	before := *e
	e.Prepare()
	if e.ID != before.ID || !e.Time.Equal(before.Time) || *e.Hash != *before.Hash {
		t.Errorf("preparing again changed it: %+v", e)
	}
}

func TestReservedType(t *testing.T) {
	t.Parallel()
	for typ, want := range map[string]bool{protocol.ProbeType: true, "lastmile.": true, "lastmile": false, "chat.lastmile.": false, "": false} {
		if got := protocol.ReservedType(typ); got != want {
			t.Errorf("ReservedType(%q) = %t", typ, got)
		}
	}
}
