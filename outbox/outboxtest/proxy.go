package outboxtest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Command is one command on its way to the server.
type Command struct {
	Name string   // "find", "getMore", …
	Body bson.Raw // without document sequences
}

// Rule decides about a command. Reply, if not nil, is answered in the server's place; Cut closes the connection
// instead of answering, and with Late the server has done the command before. The zero Verdict lets it pass.
type Rule func(Command) Verdict

// Verdict is a Rule's answer.
type Verdict struct {
	Reply bson.D
	Edit  func(bson.Raw) bson.Raw // changes the server's reply
	Cut   bool
	Late  bool
}

// Proxy is a MongoDB server in front of another one. It speaks OP_MSG only as far as it must: what it doesn't
// know it passes on.
type Proxy struct {
	target   string
	listener net.Listener
	ctx      context.Context
	wg       sync.WaitGroup

	mu    sync.Mutex
	rule  Rule                  // guarded by mu
	down  bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
}

const (
	opMsg     = 2013
	maxPacket = 48 << 20
)

// NewProxy stands before the server of a mongodb:// URL with one host, until the test is over.
func NewProxy(t testing.TB, serverURL string) *Proxy {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{target: u.Host, listener: listener, ctx: ctx, conns: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// URL is serverURL by way of the proxy.
func (p *Proxy) URL(serverURL string) string {
	u, _ := url.Parse(serverURL)
	u.Host = p.listener.Addr().String()
	q := u.Query()
	q.Set("directConnection", "true") // or the driver would go to where the server says it is
	u.RawQuery = q.Encode()
	return u.String()
}

// Set replaces the rule; nil lets everything pass.
func (p *Proxy) Set(rule Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// Cut closes all connections; new ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Down cuts, and refuses connections until Up.
func (p *Proxy) Down() {
	p.setDown(true)
	p.Cut()
}

// Up ends Down.
func (p *Proxy) Up() { p.setDown(false) }

func (p *Proxy) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.hold(client) {
		return
	}
	defer p.let(client)
	server, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.hold(server) {
		return
	}
	defer p.let(server)
	for p.forward(client, server) {
	}
}

func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down || p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) let(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// forward takes one request and answers it.
func (p *Proxy) forward(client, server net.Conn) bool {
	request, err := readPacket(client)
	if err != nil {
		return false
	}
	verdict := p.judge(request)
	switch {
	case verdict.Cut && !verdict.Late:
		return false
	case verdict.Reply != nil:
		raw, err := bson.Marshal(verdict.Reply)
		return err == nil && write(client, packet(request, raw))
	}
	if !write(server, request) {
		return false
	}
	reply, err := readPacket(server)
	if err != nil || verdict.Cut {
		return false
	}
	if body, ok := body(reply); ok && verdict.Edit != nil {
		reply = packet(request, verdict.Edit(body))
	}
	return write(client, reply)
}

func (p *Proxy) judge(request []byte) Verdict {
	p.mu.Lock()
	rule := p.rule
	p.mu.Unlock()
	raw, ok := body(request)
	if rule == nil || !ok {
		return Verdict{}
	}
	elements, err := raw.Elements()
	if err != nil || len(elements) == 0 {
		return Verdict{}
	}
	return rule(Command{Name: elements[0].Key(), Body: raw})
}

func readPacket(c net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n < 16 || n > maxPacket {
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	copy(b, size[:])
	_, err := io.ReadFull(c, b[4:])
	return b, err
}

// body is the section of kind 0, which drivers and servers send first or behind the sequences.
func body(packet []byte) (bson.Raw, bool) {
	if len(packet) < 26 || binary.LittleEndian.Uint32(packet[12:]) != opMsg {
		return nil, false
	}
	for rest := packet[20:]; len(rest) > 5; {
		n := int(binary.LittleEndian.Uint32(rest[1:]))
		if n < 4 || n > len(rest)-1 {
			return nil, false
		}
		if rest[0] == 0 {
			return bson.Raw(rest[1 : 1+n]), true
		}
		rest = rest[1+n:]
	}
	return nil, false
}

func packet(request []byte, body bson.Raw) []byte {
	b := make([]byte, 21, 21+len(body))
	binary.LittleEndian.PutUint32(b, uint32(21+len(body)))
	copy(b[8:12], request[4:8]) // responseTo: the request's id
	binary.LittleEndian.PutUint32(b[12:], opMsg)
	return append(b, body...)
}

func write(c net.Conn, b []byte) bool {
	_, err := c.Write(b)
	return err == nil
}

// Fail makes a server's error of the next n commands that match, then lets all pass. name is a command's;
// "$changeStream" is an aggregate that opens a stream.
func Fail(n int, name string, code int, codeName string, labels ...string) Rule {
	var mu sync.Mutex
	return func(c Command) Verdict {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 || !c.is(name) {
			return Verdict{}
		}
		n--
		reply := bson.D{{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: "made up: " + codeName}, {Key: "code", Value: int32(code)}, {Key: "codeName", Value: codeName}}
		if len(labels) > 0 {
			reply = append(reply, bson.E{Key: "errorLabels", Value: labels})
		}
		return Verdict{Reply: reply}
	}
}

// OpensStream says whether the command opens a change stream.
func (c Command) OpensStream() bool { return c.is("$changeStream") }

func (c Command) is(name string) bool {
	if name != "$changeStream" {
		return c.Name == name
	}
	return c.Name == "aggregate" && strings.Contains(string(c.Body), "$changeStream")
}
