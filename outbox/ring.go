package outbox

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A checkpoint keeps its last RingSlots slots, and of earlier ones one an hour, HourlySlots of them.
const (
	RingSlots   = 128
	HourlySlots = 26
)

// Back is the place n ticks back from a marker: the smallest position among the marker's own and the slots
// from that tick on. Where the ring doesn't reach that far: from the hourly slot before it on, else from the
// oldest. Its tick is the marker's own, since ticks never go back.
func (c *Checkpoint) Back(from Marker, ticks int64) Marker {
	slots := slices.Concat(c.Ring, c.Hourly)
	first := floor(slots, from.Tick-ticks)
	least := from
	for _, slot := range slots {
		if slot.Tick >= first && slot.Position.Compare(least.Position) < 0 {
			least = slot.Marker
		}
	}
	least.Tick = from.Tick
	return least
}

// floor is the greatest tick at or before the wanted one, or the least of all if none is. With every slot
// written it is the wanted tick itself; where a write failed, the slot before it covers for it.
func floor(slots []Slot, wanted int64) int64 {
	found, least := int64(-1), wanted
	for _, slot := range slots {
		if slot.Tick <= wanted {
			found = max(found, slot.Tick)
		}
		least = min(least, slot.Tick)
	}
	if found < 0 {
		return least
	}
	return found
}

func ringKey(tick int64) string {
	return "ring." + strconv.FormatInt((tick%RingSlots+RingSlots)%RingSlots, 10)
}

func hourlyKey(hour int64) string {
	return "hourly." + strconv.FormatInt((hour%HourlySlots+HourlySlots)%HourlySlots, 10)
}

// hours remembers which hour of a partition has its slot, so that the first slot of each hour is the one
// that is kept. A process that doesn't know writes it again with a later one, which loses at most that hour's beginning.
type hours struct {
	mu   sync.Mutex
	last map[int]int64
}

func (h *hours) due(partition int, hour int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, known := h.last[partition]
	return !known || last != hour
}

func (h *hours) written(partition int, hour int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = make(map[int]int64)
	}
	h.last[partition] = hour
}

// The shapes in MongoDB. A token is stored as the document that it is.
type markerDoc struct {
	Token bson.Raw       `bson:"token,omitempty"`
	Time  bson.Timestamp `bson:"clusterTime"`
	Index int64          `bson:"index"`
	Tick  int64          `bson:"tick"`
}

type slotDoc struct {
	Marker markerDoc `bson:",inline"`
	At     time.Time `bson:"time"`
}

type checkpointDoc struct {
	ID         int                `bson:"_id"`
	Partitions int                `bson:"partitions"`
	Collection string             `bson:"collection"`
	Fence      int64              `bson:"fence"`
	Marker     *markerDoc         `bson:"marker"`
	Ring       map[string]slotDoc `bson:"ring"`
	Hourly     map[string]slotDoc `bson:"hourly"`
	Since      time.Time          `bson:"notificationsSince"`
}

func encodeMarker(m Marker) markerDoc {
	return markerDoc{bson.Raw(m.Token), *m.Position.bson(), int64(m.Position.Index), m.Tick}
}

func encodeSlot(s Slot) slotDoc { return slotDoc{encodeMarker(s.Marker), s.Time} }

func (d markerDoc) marker() Marker {
	return Marker{
		Token:    Token(d.Token),
		Position: Position{Timestamp{d.Time.T, d.Time.I}, uint32(d.Index)},
		Tick:     d.Tick,
	}
}

func decodeCheckpoint(raw bson.Raw) (*Checkpoint, error) {
	var doc checkpointDoc
	if err := bson.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	cp := &Checkpoint{
		Partition: doc.ID, Partitions: doc.Partitions, Collection: doc.Collection, Fence: doc.Fence,
		Ring: slots(doc.Ring), Hourly: slots(doc.Hourly), NotificationsSince: doc.Since,
	}
	if doc.Marker != nil {
		if m := doc.Marker.marker(); !m.Position.IsZero() { // one without a place is none
			cp.Marker = &m
		}
	}
	return cp, nil
}

func slots(docs map[string]slotDoc) []Slot {
	out := make([]Slot, 0, len(docs))
	for _, d := range docs {
		out = append(out, Slot{d.Marker.marker(), d.At})
	}
	slices.SortFunc(out, func(a, b Slot) int { return cmp.Compare(a.Tick, b.Tick) })
	return out
}
