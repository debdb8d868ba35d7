package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Stream reads what is inserted into the outbox, in commit order. It belongs to one goroutine.
type Stream struct {
	// fixed after Watch
	store   *Store
	options WatchOptions

	// where it is
	cs         *mongo.ChangeStream // nil: to be opened at token
	token      Token
	position   Position
	collection string // UUID; "": there was none yet
	now        serverTime
	aheadSince time.Time // since when the place is beyond now; zero: it isn't

	// trouble
	lost    error // not to be reopened: ErrHistoryLost
	trouble error // the last one, until the stream is open again
	retryAt time.Time
	backoff backoff

	// a change that the server can't send
	guarded   bool     // changes with a giant `_id` are filtered out
	guardedAt Position // the place before the first of them
	extra     []Change // what the next Next answers first
}

// Next waits at most Config.AwaitTime for a change, and answers what is at hand then, up to Config.BatchSize;
// often nothing. It opens the stream again at its place as often as it must, with backoff and for ever: meanwhile it
// answers nothing, Trouble says why, and a call takes as long as one attempt, Config.ConnectTimeout where nobody
// answers. It returns an error only if ctx ends (another Next goes on where this one was), or if the history is
// lost: then every later call returns that error too.
func (st *Stream) Next(ctx context.Context) ([]Change, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if st.lost != nil {
		return nil, st.lost
	}
	if st.cs == nil {
		if due, err := st.waitForRetry(ctx); !due || err != nil {
			return nil, err
		}
		if err := st.open(ctx); err != nil {
			return nil, st.broken(ctx, err, true)
		}
	}
	changes, err := st.read(ctx)
	if err != nil {
		return changes, err
	}
	if err := st.checkAhead(); err != nil {
		st.lost = err
		return nil, st.lose(ctx)
	}
	return changes, nil
}

// Place is where the stream is: behind the last change that Next answered. It moves on a quiet stream too.
func (st *Stream) Place() (Token, Position) { return st.token, st.position }

// Trouble is why the stream is not open at the moment; nil: it is.
func (st *Stream) Trouble() error {
	if st.lost != nil {
		return st.lost
	}
	return st.trouble
}

// Close ends the stream. It waits a moment for the server to drop its cursor, no longer than ctx.
func (st *Stream) Close(ctx context.Context) error {
	st.drop(ctx)
	return nil
}

// read asks the server once, if nothing is left of its last answer. TryNext and not Next: a context with a
// deadline would end the driver's stream, and only TryNext comes back from an empty answer with its token.
func (st *Stream) read(ctx context.Context) ([]Change, error) {
	changes := st.extra
	st.extra = nil
	ctx = watching(ctx, &st.now)
	invalid, replaced := false, false
	for st.cs.TryNext(ctx) {
		e := readStreamEvent(st.cs.Current)
		invalid = invalid || e.operation == "invalidate"
		replaced = replaced || e.to == st.store.cfg.Collection
		if c, ok := st.take(e); ok {
			changes = append(changes, c)
		}
		if st.cs.RemainingBatchLength() == 0 || len(changes) >= st.store.cfg.BatchSize {
			break
		}
	}
	if err := st.cs.Err(); err != nil { // only the first TryNext asks the server: nothing was taken
		st.extra = changes
		return nil, st.broken(ctx, err, false)
	}
	st.arrive()
	st.recovered(ctx)
	switch {
	case replaced:
		st.lost = fmt.Errorf("watch outbox: %w: one that was renamed took its place", ErrOtherCollection)
		_ = st.lose(ctx) // the next Next says so: these changes are good
	case invalid:
		st.invalidated(ctx)
	case st.cs.ID() == 0 && st.cs.RemainingBatchLength() == 0:
		return changes, st.broken(ctx, errors.New("the server closed the cursor"), false)
	case st.guarded && st.position.Compare(st.guardedAt) > 0:
		return changes, st.unguard(ctx)
	}
	return changes, nil
}

// take moves the place behind a change, and answers it if it is an insert of this partition.
func (st *Stream) take(e streamEvent) (Change, bool) {
	st.token = Token(e.token)
	if e.operation != "insert" {
		return Change{}, false
	}
	if e.time == st.position.Timestamp {
		st.position.Index++
	} else {
		st.position = Position{e.time, 1}
	}
	if e.document == nil {
		e.document = e.key
	}
	c := st.store.change(e.document, st.options.Partitions)
	c.Position, c.Token = st.position, st.token
	return c, c.mine(st.options.Partition, st.options.Partitions)
}

// arrive takes over the driver's token, which an empty answer moves too.
func (st *Stream) arrive() {
	token := st.cs.ResumeToken()
	if len(token) == 0 {
		return
	}
	st.token = Token(append(bson.Raw(nil), token...))
	if t, ok := st.token.Time(); ok && t.Compare(st.position.Timestamp) > 0 {
		st.position = Position{Timestamp: t}
	}
}

// invalidated goes on behind a drop or a rename, with the collection that bears the name from now on.
func (st *Stream) invalidated(ctx context.Context) {
	st.store.log.WarnContext(ctx, "outbox was dropped or renamed; watching what comes under its name", keyCollection, st.collection)
	st.store.metrics.reopened.WithLabelValues("invalidate").Inc()
	st.collection = ""
	st.drop(ctx)
}

// broken decides what becomes of the stream after an error. The answer is nil where Next is to be called again.
func (st *Stream) broken(ctx context.Context, err error, opening bool) error {
	if ctx.Err() != nil {
		st.drop(ctx)
		return ctx.Err()
	}
	if st.trouble == nil {
		st.store.log.WarnContext(ctx, "change stream broke; opening it again", keyPosition, st.position, keyError, err)
	}
	st.trouble = fmt.Errorf("watch outbox: %w", err)
	judged := st.judge(err, opening)
	switch {
	case errors.Is(judged, ErrHistoryLost):
		st.lost = fmt.Errorf("watch outbox: %w", judged)
		return st.lose(ctx)
	case classify(err) == tooLarge && !st.guarded:
		st.store.metrics.reopened.WithLabelValues("oversize").Inc()
		st.drop(ctx)
		st.guard()
		return nil
	}
	st.store.metrics.reopened.WithLabelValues("error").Inc()
	st.drop(ctx)
	st.retryAt = time.Now().Add(st.backoff.next())
	return nil
}

// judge makes an ErrHistoryLost of what is one. A token that is refused counts only at an opening of our own, which
// gives it as startAfter: the driver resumes with resumeAfter, which refuses that of an invalidate.
func (st *Stream) judge(err error, opening bool) error {
	what := classify(err)
	if errors.Is(err, ErrHistoryLost) || what != lost && (what != refused || !opening || len(st.token) == 0) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrHistoryLost, err)
}

func (st *Stream) lose(ctx context.Context) error {
	st.store.metrics.lost.Inc()
	st.store.log.ErrorContext(ctx, "change stream can't go on from its place", keyPosition, st.position, keyError, st.lost)
	st.drop(ctx)
	return st.lost
}

func (st *Stream) recovered(ctx context.Context) {
	if st.trouble != nil {
		st.store.log.InfoContext(ctx, "change stream is open again", keyPosition, st.position)
	}
	st.trouble, st.retryAt = nil, time.Time{}
	st.backoff.reset()
}

// waitForRetry sleeps until the next attempt is due, but no longer than a Next may take.
func (st *Stream) waitForRetry(ctx context.Context) (due bool, err error) {
	wait := time.Until(st.retryAt)
	if wait <= 0 {
		return true, nil
	}
	if err := sleep(ctx, min(wait, st.store.cfg.AwaitTime)); err != nil {
		return false, err
	}
	return wait <= st.store.cfg.AwaitTime, nil
}

// drop closes the driver's stream; what it held beyond the place is read again.
func (st *Stream) drop(ctx context.Context) {
	if st.cs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = st.cs.Close(ctx) // best effort: the server drops an abandoned cursor by itself
	st.cs = nil
}

// ahead says whether the place lies beyond all that the server knows. The token of a stream that has just been
// opened is one tick after the server's time.
func (st *Stream) ahead() bool {
	return !st.now.IsZero() && st.position.Timestamp.Compare(st.now.next()) > 0
}

func (st *Stream) checkAhead() error {
	switch {
	case !st.ahead():
		st.aheadSince = time.Time{}
		return nil
	case st.aheadSince.IsZero():
		st.aheadSince = time.Now()
	}
	if int64(st.position.T)-int64(st.now.T) < aheadAtOnce && time.Since(st.aheadSince) < aheadFor {
		return nil
	}
	return fmt.Errorf("watch outbox: %w: the place %s lies beyond the server's time %s: was it restored from a backup?",
		ErrHistoryLost, st.position, st.now.Timestamp)
}
