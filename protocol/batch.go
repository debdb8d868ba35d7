package protocol

// Pair is one delivery to be made: with its Item's event it says who gets what at which place of his
// log. Seq 0: the user has no log. A seq means nothing outside its epoch, so the two travel together.
type Pair struct {
	User  UserID
	Epoch Epoch
	Seq   Seq
}

// Item is an event and those of its recipients that get it by this batch.
type Item struct {
	Event *Envelope
	Pairs []Pair
}

// Batch is what one entry of an inbox or of the notifications carries.
type Batch struct{ Items []Item }

// Events is the number of items.
func (b Batch) Events() int { return len(b.Items) }

// Pairs is the number of pairs of all items.
func (b Batch) Pairs() int {
	n := 0
	for _, it := range b.Items {
		n += len(it.Pairs)
	}
	return n
}

// Split cuts items into batches for one stream, in order: each of at most MaxBatchEvents events and
// MaxBatchBytes bytes (an event that is bigger by itself gets a batch of its own), no event with more
// than MaxBatchPairs pairs in one batch. Items without pairs are left out.
func Split(items []Item) []Batch {
	var s splitter
	for _, it := range items {
		for pairs := it.Pairs; len(pairs) > 0; {
			n := min(len(pairs), MaxBatchPairs)
			s.add(Item{it.Event, pairs[:n:n]}, n < len(it.Pairs))
			pairs = pairs[n:]
		}
	}
	s.flush()
	return s.done
}

type splitter struct {
	done  []Batch
	items []Item
	bytes int
}

// add puts one item into the batch at hand or begins the next. A part of a cut event stands alone:
// two parts in one batch would be more pairs of one event than it may have.
func (s *splitter) add(it Item, part bool) {
	size := itemSize(it)
	if part || len(s.items) == MaxBatchEvents || batchOverhead+s.bytes+size > MaxBatchBytes {
		s.flush()
	}
	s.items = append(s.items, it)
	s.bytes += size
	if part {
		s.flush()
	}
}

func (s *splitter) flush() {
	if len(s.items) > 0 {
		s.done = append(s.done, Batch{s.items})
	}
	s.items, s.bytes = nil, 0
}
