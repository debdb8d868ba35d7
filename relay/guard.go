package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// errDialled says that the connection was about to be dialled again.
var errDialled = errors.New("connection is not the one it was")

// guard lets a tenure's client dial once. A pool that finds its connection broken
// dials another and sends the command over that, without a word: an append would
// get a seq from a Redis that may have lost the ones before it. Here it is refused
// before it is sent, and the tenure ends.
type guard struct {
	dialled atomic.Bool
	fail    context.CancelCauseFunc
}

// DialHook lets the first dial through.
func (g *guard) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if g.dialled.Swap(true) {
			g.broken()
			return refused{}, nil
		}
		return next(ctx, network, addr)
	}
}

func (g *guard) broken() { g.fail(fmt.Errorf("%w: %w", errRedis, errDialled)) }

// ProcessHook passes everything on.
func (g *guard) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook passes everything on.
func (g *guard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// refused is the connection that a second dial gets: one that answers nothing. An
// error of the dial itself would make go-redis probe the address behind our back.
type refused struct{}

func (refused) Read([]byte) (int, error)         { return 0, errDialled }
func (refused) Write([]byte) (int, error)        { return 0, errDialled }
func (refused) Close() error                     { return nil }
func (refused) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (refused) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (refused) SetDeadline(time.Time) error      { return nil }
func (refused) SetReadDeadline(time.Time) error  { return nil }
func (refused) SetWriteDeadline(time.Time) error { return nil }
