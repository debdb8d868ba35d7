package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

func main() { os.Exit(run()) }

// run is the program; its result is the exit status.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := Config{Out: os.Stderr}
	var only string
	flag.Uint64Var(&cfg.Seed, "seed", 1, "determines the schedule of faults")
	flag.IntVar(&cfg.Faults, "faults", 60, "how many")
	flag.DurationVar(&cfg.For, "for", 3*time.Minute, "the time over which they begin")
	flag.DurationVar(&cfg.Settle, "settle", 100*time.Second, "the most that may pass after the last one until nothing is open")
	flag.IntVar(&cfg.Users, "users", 240, "how many users")
	flag.Float64Var(&cfg.Rate, "rate", 20, "events a second")
	flag.StringVar(&only, "only", "", "kinds of faults, separated by commas; empty: all of "+strings.Join(kindNames(), ", "))
	flag.StringVar(&cfg.MongoURL, "mongo-url", "", "a real MongoDB, its path naming the database; empty: an embedded one")
	flag.StringVar(&cfg.Binary, "binary", "", "the lastmile command to test; empty: built from the source")
	flag.StringVar(&cfg.Logs, "logs", "dist/chaos", "folder for the output of the processes after a violation; empty: none")
	flag.Parse()
	if only != "" {
		cfg.Only = strings.Split(only, ",")
	}
	if err := cfg.Validate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var report *Report
	complete := newStage(ctx, os.Stderr).play(func(t testing.TB) { report = Run(t, cfg) })
	if !complete || report == nil {
		fmt.Fprintln(os.Stderr, "chaos: the run itself failed; nothing was judged")
		return 2
	}
	report.Print(os.Stdout)
	if report.Violations() > 0 {
		return 1
	}
	return 0
}
