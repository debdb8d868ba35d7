package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Config is what a run can be told.
type Config struct {
	// Seed determines the schedule, and what publishers and browsers draw.
	Seed uint64
	// Faults is their number.
	Faults int
	// For is the time over which they begin.
	For time.Duration
	// Settle is the most that may pass after the last one until nothing is open.
	Settle time.Duration
	// Users is the number of users; about one in ten has two devices.
	Users int
	// Rate is the number of events a second, over all publishers.
	Rate float64
	// Only names the kinds of faults to draw from; empty: all.
	Only []string
	// MongoURL names a real MongoDB, with the database to use in its path; empty: an embedded one.
	MongoURL string
	// Binary is the lastmile command to test; empty: built from the source.
	Binary string
	// Logs is the folder for the output of the processes where something was violated; empty: none is kept.
	Logs string
	// Out takes the table, and what happens meanwhile.
	Out io.Writer
}

// Validate names everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Faults >= 0, "-faults %d: is negative", c.Faults)
	check(c.For > 0, "-for %v: give a positive time", c.For)
	check(c.Settle > 0, "-settle %v: give a positive time", c.Settle)
	check(c.Users >= 10, "-users %d: give at least 10, so that there is one of each kind", c.Users)
	check(c.Rate > 0 && c.Rate <= 1000, "-rate %v: give 0 to 1000 a second", c.Rate)
	for _, name := range c.Only {
		check(kindByName(name) != nil, "-only %s: no such kind; the kinds are %v", name, kindNames())
	}
	return errors.Join(errs...)
}
