package chat

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/lastmile-gateway/lastmile/web"
)

// Server is the chat's backend and page.
type Server struct {
	// fixed after construction
	cfg     Config
	tokens  tokens
	sockets []string
	origins []string
	page    http.Handler
	turns   *stripes

	db       *mongo.Database
	users    *mongo.Collection
	rooms    *mongo.Collection
	members  *mongo.Collection
	messages *mongo.Collection
	outbox   *mongo.Collection
}

// New connects to MongoDB, where cfg has its URL, and makes what the chat needs there. It serves nothing
// by itself: see [Server.Handler]. The errors of [outbox.Open] say what to do about a server that won't do.
func New(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure chat: %w", err)
	}
	s, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	if s.db = cfg.Mongo; s.db == nil {
		if s.db, err = open(ctx, cfg); err != nil {
			return nil, err
		}
	}
	s.users = s.db.Collection("chat_users")
	s.rooms = s.db.Collection("chat_rooms")
	s.members = s.db.Collection("chat_members")
	s.messages = s.db.Collection("chat_messages")
	s.outbox = s.db.Collection(cfg.Outbox)
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func newServer(cfg Config) (*Server, error) {
	page, err := web.Files(pageFS())
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, tokens: newTokens(cfg), page: page, turns: newStripes()}
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

// Ping is nil if MongoDB answers.
func (s *Server) Ping(ctx context.Context) error {
	if err := s.db.Client().Ping(ctx, nil); err != nil {
		return fmt.Errorf("ping MongoDB: %w", err)
	}
	return nil
}

// Close gives back the connection to MongoURL, when no request is under way any more.
func (s *Server) Close(ctx context.Context) error {
	if s.cfg.Mongo != nil {
		return nil
	}
	if err := s.db.Client().Disconnect(ctx); err != nil {
		return fmt.Errorf("close chat: %w", err)
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
