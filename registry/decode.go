package registry

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// hash is user:{uid}:at, read.
type hash struct {
	epoch     protocol.Epoch // "": there is no log, whatever else the hash holds
	base      protocol.Seq
	acked     protocol.Seq
	hasAcked  bool
	locations []Location
}

func (h hash) routed() Routed {
	return Routed{Epoch: h.epoch, Acked: h.acked, HasAcked: h.hasAcked, Locations: h.locations}
}

// decodeHash takes HGETALL's reply in either form: names and values in turn
// (RESP2, and out of a script), or a map (RESP3). What it can't read is left out:
// one bad field must not hide a user's other sessions.
func decodeHash(reply any) hash {
	var d hashDecoder
	switch r := reply.(type) {
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			d.add(text(r[i]), text(r[i+1]))
		}
	case map[any]any:
		for name, value := range r {
			d.add(text(name), text(value))
		}
	}
	return d.hash()
}

type hashDecoder struct {
	h       hash
	hasBase bool
}

func (d *hashDecoder) add(name, value string) {
	switch name {
	case "@epoch":
		d.h.epoch = protocol.Epoch(value)
	case "@base":
		d.h.base, d.hasBase = seq(value)
	case "@acked":
		d.h.acked, d.h.hasAcked = seq(value)
	default:
		if f, err := ParseField(name); err == nil {
			d.h.locations = append(d.h.locations, parseLocation(f, value))
		}
	}
}

func (d *hashDecoder) hash() hash {
	if d.h.epoch == "" || !d.hasBase {
		d.h.epoch, d.h.base, d.h.acked, d.h.hasAcked = "", 0, 0, false
	}
	slices.SortFunc(d.h.locations, func(a, b Location) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Session, b.Session))
	})
	return d.h
}

func seq(s string) (protocol.Seq, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	return protocol.Seq(n), true
}

// decodeIDs reads a list of ids. An element of another length stands for no event
// there is: the session that meets it finds nothing under it, and breaks.
func decodeIDs(reply any) []protocol.EventID {
	list, _ := reply.([]any)
	ids := make([]protocol.EventID, len(list))
	for i, e := range list {
		if s := text(e); len(s) == len(ids[i]) {
			copy(ids[i][:], s)
		}
	}
	return ids
}

func decodeMillis(reply any) time.Time {
	ms, err := strconv.ParseInt(text(reply), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func integer(v any) int64 {
	n, _ := v.(int64)
	return n
}
