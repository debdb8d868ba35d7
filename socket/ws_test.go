package socket_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

func setup(t *testing.T, tweaks ...tweak) (*rig, *node) {
	t.Helper()
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	return r, r.start("a", tweaks...).ready()
}

func TestRefusals(t *testing.T) {
	_, a := setup(t, func(c *socket.Config) {
		c.HelloTimeout = 100 * time.Millisecond
		c.Origins = []string{"*.example.org", "https://exact.test"}
	})
	past := func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Second).Unix() }
	without := func(name string) func(jwt.MapClaims) { return func(c jwt.MapClaims) { delete(c, name) } }
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "u", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 64) + "x" // 129 bytes
	for name, tc := range map[string]struct {
		hello   hello
		headers []string
		code    protocol.CloseCode
	}{
		"no hello":           {nil, nil, protocol.CloseProtocolError},
		"first frame":        {hello{}, nil, protocol.CloseProtocolError},
		"no token":           {hello{"acks": true}, nil, protocol.CloseBadToken},
		"forged":             {hello{"token": token("u") + "x"}, nil, protocol.CloseBadToken},
		"no algorithm":       {hello{"token": none}, nil, protocol.CloseBadToken},
		"no sub":             {hello{"token": token("u", without("sub"))}, nil, protocol.CloseBadToken},
		"no exp":             {hello{"token": token("u", without("exp"))}, nil, protocol.CloseBadToken},
		"long sub":           {hello{"token": token(long)}, nil, protocol.CloseBadToken},
		"expired":            {hello{"token": token("u", past)}, nil, protocol.CloseTokenExpired},
		"expired and forged": {hello{"token": token("u", past) + "x"}, nil, protocol.CloseBadToken},
		"bad bearer":         {nil, []string{"Authorization", "Bearer nonsense"}, protocol.CloseBadToken},
		"expired bearer":     {nil, []string{"Authorization", "Bearer " + token("u", past)}, protocol.CloseTokenExpired},
		"other user":         {hello{"token": token("v")}, []string{"Authorization", "Bearer " + token("u")}, protocol.CloseBadToken},
		"no subprotocol":     {nil, []string{"Sec-WebSocket-Protocol", ""}, protocol.CloseUnsupportedVersion},
		"other subprotocol":  {nil, []string{"Sec-WebSocket-Protocol", "lastmile.v9"}, protocol.CloseUnsupportedVersion},
		"foreign origin":     {nil, []string{"Origin", "https://evil.test"}, protocol.CloseForbidden},
		"null origin":        {nil, []string{"Origin", "null"}, protocol.CloseForbidden},
		"origin by scheme":   {nil, []string{"Origin", "http://exact.test"}, protocol.CloseForbidden},
		"bad device":         {hello{"token": token("u"), "device": strings.Repeat("d", 33)}, nil, protocol.CloseProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := tc.hello
			if h != nil && len(h) == 0 {
				h = nil
			}
			c := dial(t, a.url(), h, tc.headers...)
			if name == "first frame" {
				c.send(map[string]any{"type": "ping"})
			}
			c.closedWith(tc.code)
		})
	}
	for _, origin := range []string{a.http.URL, "https://chat.example.org", "https://exact.test"} {
		c := dial(t, a.url(), hello{"token": token("u")}, "Origin", origin)
		c.welcome(1)
	}
}

func TestBearerAtTheUpgrade(t *testing.T) {
	r, a := setup(t, func(c *socket.Config) { c.ResumeWait = 100 * time.Millisecond })
	c := connect(t, a, "u")
	r.publish("e1", "u")
	c.sees("e1")
	p := c.position
	c.drop()
	r.publish("e2", "u")

	bearer := []string{"Authorization", "Bearer " + token("u")}
	resumes := dial(t, a.url(), hello{"acks": true, "resume": map[string]any{"epoch": p.Epoch, "seq": p.Seq, "id": p.ID}}, bearer...)
	resumes.sees("e2")
	silent := dial(t, a.url(), nil, bearer...)
	if w := silent.welcome(1); w.Recovered || w.Seq != 2 {
		t.Errorf("welcome: %+v", w)
	}
	talks := dial(t, a.url(), nil, bearer...)
	talks.send(map[string]any{"type": "ping"})
	talks.welcome(1)
	talks.find("pong", func(f frame) bool { return f.Type == "pong" })
	silent.send(hello{"type": "hello"})
	silent.find("refusal of a late hello", func(f frame) bool { return f.Code == protocol.ErrorBadFrame })
}

func TestTokens(t *testing.T) {
	r, a := setup(t)
	short := func(c jwt.MapClaims) { c["exp"] = float64(time.Now().Add(1500*time.Millisecond).UnixMilli()) / 1000 }
	ends := dial(t, a.url(), hello{"token": token("u", short)})
	renews := dial(t, a.url(), hello{"token": token("u", short)})
	other := dial(t, a.url(), hello{"token": token("u")})
	for _, c := range []*client{ends, renews, other} {
		c.welcome(1)
	}
	renews.send(map[string]any{"type": "token", "token": token("u")})
	other.send(map[string]any{"type": "token", "token": token("v")})
	other.closedWith(protocol.CloseBadToken)
	ends.closedWith(protocol.CloseTokenExpired)
	renews.send(map[string]any{"type": "ping"})
	renews.find("pong", func(f frame) bool { return f.Type == "pong" })

	if err := r.reg.Revoke(t.Context(), "u", time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	dial(t, a.url(), hello{"token": token("u")}).closedWith(protocol.CloseBadToken)
	dial(t, a.url(), hello{"token": token("v")}).welcome(1)
}

func TestFramesThatAreWrong(t *testing.T) {
	_, a := setup(t)
	c := connect(t, a, "u")
	wrong := func(name string, raw []byte, code protocol.ErrorCode) {
		before := len(c.all())
		c.sendRaw(websocket.MessageText, raw)
		testkit.Eventually(t, patience, name, func() bool {
			all := c.all()
			return len(all) > before && all[len(all)-1].Code == code
		})
	}
	wrong("no JSON", []byte("{"), protocol.ErrorBadFrame)
	wrong("unknown type", []byte(`{"type":"dance"}`), protocol.ErrorBadFrame)
	wrong("ack of a word", []byte(`{"type":"ack","seq":"one"}`), protocol.ErrorBadAck)
	wrong("ack ahead", []byte(`{"type":"ack","seq":7}`), protocol.ErrorBadAck)
	wrong("too large", bytes.Repeat([]byte(" "), protocol.MaxClientFrame+1), protocol.ErrorTooLarge)
	wrong("second hello", []byte(`{"type":"hello"}`), protocol.ErrorBadFrame)
	if !c.open() {
		t.Fatal("closed")
	}
	far := connect(t, a, "u")
	far.sendRaw(websocket.MessageText, bytes.Repeat([]byte(" "), 3*protocol.MaxClientFrame))
	<-far.done
	if far.code != websocket.StatusMessageTooBig {
		t.Errorf("closed with %d", far.code)
	}
	binary := connect(t, a, "u")
	binary.sendRaw(websocket.MessageBinary, []byte(`{"type":"ping"}`))
	binary.closedWith(protocol.CloseProtocolError)
}

func TestCase_C03_InvalidUTF8ClosesItsSender(t *testing.T) {
	r, a := setup(t)
	reader, sender := connect(t, a, "u"), connect(t, a, "u")
	sender.sendRaw(websocket.MessageText, []byte("{\"type\":\"ping\",\"x\":\"\xff\xfe\"}"))
	sender.closedWith(protocol.CloseNotUTF8)
	r.publish("e1", "u")
	reader.sees("e1")
}

func TestCase_C05_EveryCloseHasItsCode(t *testing.T) {
	r, a := setup(t, func(c *socket.Config) { c.MaxSessions = 2 })
	user := protocol.UserID(strings.Repeat("ü", 64)) // the longest there is
	c1 := connect(t, a, string(user))
	connect(t, a, string(user))
	dial(t, a.url(), hello{"token": token(string(user))}).closedWith(protocol.CloseTooManySessions)
	c1.drop()
	testkit.Eventually(t, patience, "room again", func() bool {
		u, err := r.reg.Lookup(t.Context(), user)
		return err == nil && len(u.Locations) == 1
	})
	connect(t, a, string(user))
}

func TestTooManySessionsCountsNoEndedInstances(t *testing.T) {
	r, a := setup(t, func(c *socket.Config) { c.MaxSessions = 1 })
	if err := r.rdb.HSet(t.Context(), "user:{u}:at", "dead-abcdefghijkl/abcdefghijkl", "1 ").Err(); err != nil {
		t.Fatal(err)
	}
	connect(t, a, "u")
}

func TestCase_C06_PongsWhileEventsArePublishedSlowly(t *testing.T) {
	r, a := setup(t, func(c *socket.Config) { c.PingInterval, c.PongTimeout = 100*time.Millisecond, 300*time.Millisecond })
	r.store.block = make(chan struct{})
	c := connect(t, a, "u", hello{"token": token("u", mayPublish("chat.*"))})
	c.send(map[string]any{"type": "publish", "ref": "1", "event": map[string]any{"to": []string{"u"}, "type": "chat.x", "data": map[string]any{}}})
	still := time.After(time.Second)
	select {
	case <-c.done:
		t.Fatal("closed although it answers pings")
	case <-still:
	}
	close(r.store.block)
	c.find("published", func(f frame) bool { return f.Type == "published" && f.Ref == "1" })
}

func TestCase_C07_SilentClientsStayConnected(t *testing.T) {
	r, a := setup(t, func(c *socket.Config) {
		c.PingInterval, c.PongTimeout, c.HelloTimeout = 100*time.Millisecond, 200*time.Millisecond, 300*time.Millisecond
		c.AckTimeout, c.ReloadTimeout, c.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
		c.ConnectTimeout, c.RefreshInterval = 300*time.Millisecond, 200*time.Millisecond
	})
	c := connect(t, a, "u")
	select {
	case <-c.done:
		t.Fatal("closed")
	case <-time.After(time.Second):
	}
	r.publish("e1", "u")
	c.sees("e1")
}

func TestNoPong(t *testing.T) {
	_, a := setup(t, func(c *socket.Config) { c.PingInterval, c.PongTimeout = 100*time.Millisecond, 200*time.Millisecond })
	proxy := testkit.NewProxy(t, strings.TrimPrefix(a.http.URL, "http://"))
	c := dial(t, "ws://"+proxy.Addr()+"/v1/ws", hello{"token": token("u")})
	c.welcome(1)
	proxy.Drop(testkit.ToServer) // half-open: it hears us, we don't hear it
	c.closedWith(protocol.CloseNoPong)
}

func TestCase_C01_AWriteIsNoDelivery(t *testing.T) {
	r, a := setup(t, func(c *socket.Config) { c.PingInterval, c.PongTimeout = 200*time.Millisecond, 300*time.Millisecond })
	proxy := testkit.NewProxy(t, strings.TrimPrefix(a.http.URL, "http://"))
	c := dial(t, "ws://"+proxy.Addr()+"/v1/ws", hello{"token": token("u"), "acks": true})
	c.welcome(1)
	r.publish("before", "u")
	c.sees("before")
	r.settled(a.Instance())
	proxy.BlackHole()
	want := names("e", 20)
	for _, name := range want {
		r.publish(name, "u")
	}
	testkit.Eventually(t, patience, "found dead", func() bool { return a.Status().Sessions == 0 })
	c.drop()
	next := c.resumed(a, "u")
	next.sees(want...)
	r.settled(a.Instance())
	if next.doubles != 0 {
		t.Errorf("%d doubles", next.doubles)
	}
}

func TestCase_C13_PingsKeepProxiesFromCutting(t *testing.T) {
	_, a := setup(t, func(c *socket.Config) { c.PingInterval = 100 * time.Millisecond })
	proxy := testkit.NewProxy(t, strings.TrimPrefix(a.http.URL, "http://"))
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	upgrade := "GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: lastmile.v1\r\nAuthorization: Bearer " + token("u") + "\r\n\r\n"
	if _, err := conn.Write([]byte(upgrade)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	buf := make([]byte, 4096)
	for range 3 { // whatever else comes, no silence longer than a ping's interval and a bit
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("silence: %v", err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Contains(got, []byte{0x89}) {
		t.Error("no ping frame")
	}
}

// A client that does not wait for the upgrade's answer: what it has sent by then is not lost.
func TestAHelloTogetherWithTheUpgrade(t *testing.T) {
	_, a := setup(t)
	for _, padding := range []int{0, 300, 3000} {
		c, err := net.Dial("tcp", strings.TrimPrefix(a.http.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(patience))
		hello := []byte(`{"type":"hello","token":"` + token("u") + `","x":"` + strings.Repeat("x", padding) + `"}`)
		request := []byte("GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: lastmile.v1\r\n\r\n\x81\xfe")
		request = binary.BigEndian.AppendUint16(request, uint16(len(hello)))
		request = append(append(request, 0, 0, 0, 0), hello...) // masked with zeros
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		got, b := "", make([]byte, 4096)
		for !strings.Contains(got, `"type":"welcome"`) {
			n, err := c.Read(b)
			if err != nil {
				t.Fatalf("after %q: %v", got, err)
			}
			got += string(b[:n])
		}
	}
}
