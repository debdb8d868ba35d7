package main

import (
	"container/heap"
	"context"
	"time"
)

// timeline does what is to be done at its time, one after the other, on the goroutine that runs it.
type timeline struct {
	list  actions
	count int
}

type action struct {
	at    time.Time
	order int // among those of one time
	do    func()
}

// after plans do for d from now.
func (l *timeline) after(d time.Duration, do func()) {
	l.count++
	heap.Push(&l.list, action{at: time.Now().Add(d), order: l.count, do: do})
}

// run does everything there is, also what is planned meanwhile, until done answers true or ctx ends. It
// looks at done at least ten times a second.
func (l *timeline) run(ctx context.Context, done func() bool) {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for ctx.Err() == nil && !done() {
		for len(l.list) > 0 && !l.list[0].at.After(time.Now()) {
			heap.Pop(&l.list).(action).do()
		}
		wait := 100 * time.Millisecond
		if len(l.list) > 0 {
			wait = min(wait, time.Until(l.list[0].at))
		}
		next := time.NewTimer(max(wait, 0))
		select {
		case <-next.C:
		case <-look.C:
		case <-ctx.Done():
		}
		next.Stop()
	}
}

// actions is a heap by time.
type actions []action

func (a actions) Len() int { return len(a) }
func (a actions) Less(i, j int) bool {
	if a[i].at.Equal(a[j].at) {
		return a[i].order < a[j].order
	}
	return a[i].at.Before(a[j].at)
}
func (a actions) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *actions) Push(x any)   { *a = append(*a, x.(action)) }
func (a *actions) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}

// pause waits, and says whether it waited to the end.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
