package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a run has shown.
type Report struct {
	Config Config
	Took   time.Duration
	Faults map[string]int // by kind

	Events, Recipients, Pairs int // committed
	Browsers, Shown, Loads    int
	Duplicates, Notified      int // dropped by browsers as known; notifications taken
	Retries                   int64
	Exits                     []string // processes that ended unasked
	OldestEntry               time.Duration
	Gap, CalmGap              gap
	Excepted                  excepted

	// violations
	Lost, Twice, Disorder, Forsaken, Needless, Repeated, Stale, Broken []finding
}

// gap is how long somebody waited.
type gap struct {
	took time.Duration
	text string
}

// excepted counts what the promise names as not promised.
type excepted struct {
	LoadedAgain   int // shown once more after the page had loaded it
	NotifiedAgain int // notified though acked, after Redis lost everything
	Crossed       int // notified though acked, but not in time
	SentAgain     int // the same webhook id twice, around a fault
}

type row struct {
	name string
	list []finding
}

func (r *Report) rows() []row {
	return []row{
		{"lost", r.Lost},
		{"seen twice by the application", r.Twice},
		{"out of order", r.Disorder},
		{"neither delivered nor notified", r.Forsaken},
		{"notified though acked in time", r.Needless},
		{"notified twice", r.Repeated},
		{"older than five minutes in an inbox", r.Stale},
		{"protocol, process or settling faults", r.Broken},
	}
}

// Violations is how many there are.
func (r *Report) Violations() (n int) {
	for _, one := range r.rows() {
		n += len(one.list)
	}
	return n
}

// Print writes the table, and what is behind each violation.
func (r *Report) Print(out io.Writer) {
	r.details(out)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-38s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "\n%s\n", strings.Repeat("─", 72))
	line("seed", "%d", r.Config.Seed)
	line("took", "%s", r.Took.Round(time.Second))
	line("events committed", "%d (%d retries of publishers)", r.Events, r.Retries)
	line("recipients", "%d users, %d pairs", r.Recipients, r.Pairs)
	line("browsers", "%d; shown %d, known again %d, page loads %d", r.Browsers, r.Shown, r.Duplicates, r.Loads)
	line("notifications", "%d", r.Notified)
	total := 0
	for _, n := range r.Faults {
		total += n
	}
	line("faults", "%d", total)
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		line("  "+kind, "%d", r.Faults[kind])
	}
	line("processes that ended unasked", "%d", len(r.Exits))
	line("oldest entry seen in an inbox", "%s", short(r.OldestEntry))
	line("longest gap of a connected user", "%s (%s)", short(r.Gap.took), r.Gap.text)
	line("  on a network without faults", "%s (%s)", short(r.CalmGap.took), r.CalmGap.text)
	line("not promised, and seen", "%d shown that the page had loaded, %d notified again after a total loss,", r.Excepted.LoadedAgain, r.Excepted.NotifiedAgain)
	line("", "%d acks that crossed the grace, %d webhooks repeated with their id", r.Excepted.Crossed, r.Excepted.SentAgain)
	fmt.Fprintln(out, strings.Repeat("─", 72))
	for _, one := range r.rows() {
		line(one.name, "%d", len(one.list))
	}
	fmt.Fprintln(out, strings.Repeat("─", 72))
}

const (
	shownMost   = 8  // violations of a kind that are told in full
	historyMost = 60 // lines of a browser's history
)

func (r *Report) details(out io.Writer) {
	for _, exit := range r.Exits {
		fmt.Fprintf(out, "ended unasked: %s\n", exit)
	}
	told := map[*browser]bool{}
	for _, one := range r.rows() {
		for i, f := range one.list {
			if i == shownMost {
				fmt.Fprintf(out, "%s: and %d more\n", one.name, len(one.list)-i)
				break
			}
			fmt.Fprintf(out, "%s: %s\n", one.name, f.text)
			if f.browser != nil && !told[f.browser] {
				told[f.browser] = true
				f.browser.tell(out)
			}
		}
	}
}

func (b *browser) tell(out io.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(out, "    history of %s on %s:\n", b.name, b.network.name)
	for _, one := range b.history[max(0, len(b.history)-historyMost):] {
		fmt.Fprintf(out, "    %s\n", one)
	}
}

// String names a habit.
func (h habit) String() string { return [...]string{"steady", "commuter", "gone", "absent"}[h] }
