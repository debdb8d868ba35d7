package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	maxName = 64  // characters
	maxSlug = 100 // bytes, so that an id with its hash stays below the 128 of a user id
)

// User is somebody who can sign in; the JSON is what the API answers.
type User struct {
	ID   string `json:"id" bson:"_id"`
	Name string `json:"name" bson:"name"`
}

// cleanName gives the display name: free text without control characters, spaces collapsed.
func cleanName(s string) (string, error) {
	name := strings.Join(strings.Fields(s), " ")
	switch {
	case name == "":
		return "", badRequest("name: empty")
	case utf8.RuneCountInString(name) > maxName:
		return "", badRequest(fmt.Sprintf("name: more than %d characters", maxName))
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", badRequest("name: control characters")
	}
	return name, nil
}

// slug makes an id of a name: lower case, letters and digits of any script, "-" for the rest. Where that
// loses something a hash of the name tells such names apart.
func slug(name string) string {
	lower := strings.ToLower(name)
	id := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, lower)
	id = strings.Trim(id, "-")
	for len(id) > maxSlug {
		_, size := utf8.DecodeLastRuneInString(id)
		id = id[:len(id)-size]
	}
	if id == lower {
		return id
	}
	sum := sha256.Sum256([]byte(lower))
	return strings.TrimPrefix(id+"-"+hex.EncodeToString(sum[:4]), "-")
}

func (s *Server) postLogin(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	name, err := cleanName(body.Name)
	if err != nil {
		return err
	}
	// The first spelling stays: messages carry the name, and it should not change under them.
	u := User{ID: slug(name), Name: name}
	err = s.users.FindOneAndUpdate(r.Context(), bson.D{{Key: "_id", Value: u.ID}},
		bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "name", Value: u.Name}}}},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&u)
	if err != nil {
		return fmt.Errorf("store user: %w", err)
	}
	if _, err := s.join(r.Context(), Lobby, u); err != nil {
		return err
	}
	session, err := s.tokens.mintSession(u)
	if err != nil {
		return fmt.Errorf("mint session: %w", err)
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, map[string]any{"user": u, "session": session})
	return nil
}
