package outbox

import "sync"

// identity remembers which collection bears the outbox' name, and from which place on. A marker of before is
// another collection's, also when it is copied later: saved under the new one's UUID it would make its next
// reader go on where it has to scan.
type identity struct {
	mu    sync.Mutex
	uuid  string   // guarded by mu
	since Position // guarded by mu
}

// saw is told of a stream that is open at a place.
func (i *identity) saw(uuid string, at Position) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if uuid != i.uuid || at.Compare(i.since) < 0 {
		i.uuid, i.since = uuid, at
	}
}

// of is the collection that a place belongs to; "" if that is not known.
func (i *identity) of(p Position) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.Compare(i.since) < 0 {
		return ""
	}
	return i.uuid
}
