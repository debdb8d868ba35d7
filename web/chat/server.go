package chat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/lastmile-gateway/lastmile/web"
)

// ErrNotPrepared is answered by [Server.Ready] until the collections, their indexes and the lobby are there.
var ErrNotPrepared = errors.New("chat is not prepared")

// Server is the chat's backend and page.
type Server struct {
	// fixed after construction
	cfg     Config
	tokens  tokens
	sockets []string
	origins []string
	page    http.Handler

	users    *mongo.Collection
	rooms    *mongo.Collection
	members  *mongo.Collection
	messages *mongo.Collection
	outbox   *mongo.Collection

	prepared atomic.Bool
}

// New makes a server; it starts nothing and asks nobody.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure chat: %w", err)
	}
	page, err := web.Files(pageFS())
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:      cfg,
		tokens:   newTokens(cfg),
		page:     page,
		users:    cfg.Mongo.Collection("chat_users"),
		rooms:    cfg.Mongo.Collection("chat_rooms"),
		members:  cfg.Mongo.Collection("chat_members"),
		messages: cfg.Mongo.Collection("chat_messages"),
		outbox:   cfg.Mongo.Collection(cfg.Outbox),
	}
	for _, socket := range cfg.Sockets {
		u, err := socketURL(socket)
		if err != nil {
			return nil, err
		}
		s.sockets = append(s.sockets, u.String())
		s.origins = append(s.origins, u.Scheme+"://"+u.Host)
	}
	return s, nil
}

// Run prepares the database, trying again until it is there, and waits for the end of ctx.
func (s *Server) Run(ctx context.Context) error {
	wait := 100 * time.Millisecond
	told := false
	for {
		err := s.Prepare(ctx)
		if err == nil || ctx.Err() != nil {
			break
		}
		if !told {
			s.cfg.Logger.WarnContext(ctx, "chat waits for MongoDB", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rand.N(wait)):
		}
		wait = min(2*wait, 5*time.Second)
	}
	<-ctx.Done()
	return nil
}

// Ready is nil, or says why requests can't be served.
func (s *Server) Ready() error {
	if !s.prepared.Load() {
		return ErrNotPrepared
	}
	return nil
}

// Handler serves the page at /, the browser client at /client/ and the API at /api/.
func (s *Server) Handler() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /api/config", s.getConfig)
	api.HandleFunc("POST /api/login", s.guard(s.postLogin))
	api.HandleFunc("GET /api/token", s.user(s.getToken))
	api.HandleFunc("GET /api/rooms", s.user(s.getRooms))
	api.HandleFunc("POST /api/rooms", s.user(s.postRoom))
	api.HandleFunc("POST /api/rooms/{room}/join", s.user(s.postJoin))
	api.HandleFunc("GET /api/rooms/{room}/members", s.user(s.getMembers))
	api.HandleFunc("GET /api/rooms/{room}/messages", s.user(s.getMessages))
	api.HandleFunc("POST /api/rooms/{room}/messages", s.user(s.postMessage))
	api.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, "no such endpoint: "+r.Method+" "+r.URL.Path)
	})

	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	mux.Handle("/client/", http.StripPrefix("/client", web.Client()))
	mux.Handle("/", s.page)
	return web.Secure(mux, s.origins...)
}

func (s *Server) getConfig(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"sockets": s.sockets})
}
