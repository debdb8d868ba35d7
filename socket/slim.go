package socket

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// What a connection's buffers hold: an ack and the like, and a frame of an event or two. Longer ones are
// read and written past them, with one system call more. net/http's own, 4 KiB each, would be a third of
// what an idle connection costs.
const (
	slimRead  = 512
	slimWrite = 1024
)

// slim makes the upgrade take small buffers.
type slim struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (s slim) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, old, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	var r io.Reader = c
	early := old.Reader.Buffered() // from a client that did not wait for the answer
	if early > 0 {
		r = io.MultiReader(io.LimitReader(old.Reader, int64(early)), c)
	}
	br := bufio.NewReaderSize(r, max(slimRead, early))
	if _, err := br.Peek(early); err != nil { // the upgrade takes over what is buffered, and nothing else
		_ = c.Close()
		return nil, nil, err
	}
	return c, bufio.NewReadWriter(br, bufio.NewWriterSize(c, slimWrite)), nil
}
