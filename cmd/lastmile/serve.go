package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// httpGrace is how long requests under way may take once a listener was asked to stop.
	httpGrace = time.Second
	// closeGrace bounds what a client says to its server when it is closed: that one may be gone.
	closeGrace = time.Second
)

// serveHTTP answers requests on the listener until ctx ends, lets those under way finish for
// httpGrace, and closes what is left. It returns nil when asked to stop.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpGrace)
		defer cancel()
		if server.Shutdown(limited) != nil {
			_ = server.Close() // what did not finish in time is cut
		}
	})
	err := server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-done
		return nil
	}
	stop()
	return fmt.Errorf("serve %s: %w", listener.Addr(), err)
}

// layers runs parts that depend on each other: each layer outlives the ones started after it. When
// ctx ends, or any part fails, they are stopped from the last to the first.
type layers struct {
	ctx    context.Context
	failed context.CancelCauseFunc
	stack  []layer
}

type layer struct {
	cancel context.CancelFunc
	group  *errgroup.Group
}

// part is the Run method of whatever lives long.
type part func(ctx context.Context) error

func newLayers(ctx context.Context) *layers {
	watched, failed := context.WithCancelCause(ctx)
	return &layers{ctx: watched, failed: failed}
}

// start runs the parts in a layer of their own.
func (l *layers) start(parts ...part) {
	// Its own end comes only when the layers above it are gone: not when ctx ends.
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.ctx))
	group := new(errgroup.Group)
	for _, run := range parts {
		group.Go(func() error {
			err := run(ctx)
			switch {
			case err != nil:
				l.failed(err)
			case ctx.Err() == nil:
				l.failed(errors.New("a part ended without being asked to"))
			}
			return err
		})
	}
	l.stack = append(l.stack, layer{cancel: cancel, group: group})
}

// closing closes a client when the layers that use it are gone, and before those that it speaks to.
func (l *layers) closing(shut func(context.Context) error) {
	l.start(func(ctx context.Context) error {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		return shut(limited)
	})
}

// wait blocks until ctx ends or a part fails, stops all layers and returns the first failure.
func (l *layers) wait() error {
	<-l.ctx.Done()
	return l.stop()
}

func (l *layers) stop() error {
	l.failed(nil)
	var errs []error
	for i := len(l.stack) - 1; i >= 0; i-- {
		l.stack[i].cancel()
		errs = append(errs, l.stack[i].group.Wait())
	}
	l.stack = nil
	if cause := context.Cause(l.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return errors.Join(errs...)
}

// await waits until ready answers nil; its last answer is in the error when the time is over.
func await(ctx context.Context, limit time.Duration, what string, ready func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("start %s: not ready after %s: %w", what, limit, err)
		case <-look.C:
		}
	}
}
