package socket

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Subprotocol is the only WebSocket subprotocol that the server speaks.
const Subprotocol = "lastmile.v1"

// readFactor is how far above the largest allowed frame one is still read, to be refused politely; a
// frame above that ends the connection.
const readFactor = 2

// serveWS begins one WebSocket. What a browser has to tell apart is refused by a close
// code after the upgrade, since scripts can't see the status of a failed one.
func (s *Server) serveWS(w http.ResponseWriter, r *http.Request) {
	offered := subprotocols(r)
	// The origin is checked by admit: an upgrade refused by status looks to a script like a server that
	// is down, and it would try for ever.
	ws, err := websocket.Accept(slim{w}, r, &websocket.AcceptOptions{
		Subprotocols: speak(offered), InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return // Accept has answered
	}
	ws.SetReadLimit(readFactor * protocol.MaxClientFrame)
	id, code := s.admit(r, offered)
	c := newConn(s, ws, id)
	if code == 0 && !s.conns.enter(c, s.cfg.MaxConnections) {
		code = protocol.CloseOverloaded
	}
	if code != 0 {
		c.cancel()
		s.metrics.closed(code)
		_ = ws.Close(websocket.StatusCode(code), code.Reason()) // waits 5 s at most
		return
	}
	// The handler ends here, and with it all that net/http keeps for a request: as much as the whole rest.
	// Whoever needs to know of the connection's end waits for conns.
	go c.serve()
}

// admit returns the identity, if the upgrade carried one, or the code to refuse with.
func (s *Server) admit(r *http.Request, offered []string) (*identity, protocol.CloseCode) {
	switch state := s.state.Load(); {
	case !slices.Contains(offered, Subprotocol):
		return nil, protocol.CloseUnsupportedVersion
	case !s.allowed(r):
		return nil, protocol.CloseForbidden
	case state == starting:
		return nil, protocol.CloseOverloaded
	case state >= draining:
		return nil, protocol.CloseRestart
	}
	token, ok := bearer(r)
	if !ok {
		return nil, 0
	}
	id, err := s.verifier.verify(token)
	if err != nil {
		return nil, closeCode(err)
	}
	return id, 0
}

func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "bearer")
}

func subprotocols(r *http.Request) []string {
	var all []string
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" {
				all = append(all, p)
			}
		}
	}
	return all
}

// speak chooses the subprotocol to answer with. One that the server doesn't speak is echoed: without
// any, a browser would drop the connection before it could read why.
func speak(offered []string) []string {
	if len(offered) == 0 || slices.Contains(offered, Subprotocol) {
		return []string{Subprotocol}
	}
	return offered[:1]
}

// allowed checks the origin, which a browser always sends and a script can't choose.
func (s *Server) allowed(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true // no browser
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	if strings.EqualFold(u.Host, r.Host) {
		return true
	}
	host := strings.ToLower(u.Host)
	for _, pattern := range s.cfg.Origins {
		pattern, subject := strings.ToLower(pattern), host
		if strings.Contains(pattern, "://") {
			subject = strings.ToLower(u.Scheme) + "://" + host
		}
		if ok, err := path.Match(pattern, subject); ok && err == nil {
			return true
		}
	}
	return false
}

// closeWS says goodbye. The context of the reader ends soon after, so that a peer that doesn't answer
// holds nobody up.
func closeWS(ws *websocket.Conn, code protocol.CloseCode, cancel context.CancelFunc) {
	patience := time.AfterFunc(closePatience, cancel)
	defer patience.Stop()
	_ = ws.Close(websocket.StatusCode(code), code.Reason())
}
