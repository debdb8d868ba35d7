package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one entry of the schedule.
type fault struct {
	at   time.Duration // since the faults began
	kind *kind
	pick uint64        // which of the possible targets
	last time.Duration // how long it lasts, where that means something
	deep time.Duration // how much is lost, where that means something
}

// streams of randomness, one for each use, so that drawing more for one changes no other.
const (
	drawPlan = iota + 1
	drawPublishers
	drawPeople
	drawWebhook
)

func draw(seed, use, index uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, use<<32|index)) }

// plan makes the schedule: evenly spread with jitter, each kind once before any comes by its weight.
func plan(cfg Config) []fault {
	r := draw(cfg.Seed, drawPlan, 0)
	deck := deal(r, cfg)
	out := make([]fault, len(deck))
	every := cfg.For / time.Duration(max(1, len(deck)))
	for i, k := range deck {
		jitter := time.Duration(r.Int64N(int64(every)))
		out[i] = fault{
			at:   time.Duration(i)*every + jitter,
			kind: k,
			pick: r.Uint64(),
			last: between(r, k.least, k.most),
			deep: between(r, time.Second, 10*time.Second), // below redis.loss, 15 s
		}
	}
	return out
}

// deal draws the kinds in their order.
func deal(r *rand.Rand, cfg Config) []*kind {
	var from, weighted []*kind
	for i := range kinds {
		k := &kinds[i]
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, k.name) {
			continue
		}
		from = append(from, k)
		for range k.weight {
			weighted = append(weighted, k)
		}
	}
	r.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	deck := from[:min(len(from), cfg.Faults)]
	for len(deck) < cfg.Faults {
		deck = append(deck, weighted[r.IntN(len(weighted))])
	}
	r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}
