package relay

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WebhookConfig says where notices go, and how.
type WebhookConfig struct {
	// URL of the receiver, http or https. Required.
	URL string
	// Secret signs: whsec_ and base64, as the Standard Webhooks specification writes
	// it, or the bytes themselves. At least 24 bytes. Required.
	Secret string
	// Timeout bounds a call, the answer included. Default 10 s.
	Timeout time.Duration
}

const (
	secretPrefix = "whsec_"
	secretLeast  = 24 // bytes; Standard Webhooks, "Signature scheme"
	// answerMost is how much of an answer is read, so that the connection can be
	// used again; of a longer one the rest is not waited for.
	answerMost = 64 << 10
	// retryAfterMost bounds what a receiver can ask for.
	retryAfterMost = 5 * time.Minute
)

// Webhook posts each notice to an URL, signed by the Standard Webhooks
// specification (https://www.standardwebhooks.com, version 1): headers webhook-id,
// webhook-timestamp and webhook-signature. A 2xx answer takes the notice, 410
// disables the endpoint, anything else is a failure; redirects are not followed.
type Webhook struct {
	// fixed after construction
	url    string
	shown  string
	key    []byte
	client *http.Client
}

// NewWebhook makes one. It does no I/O. Its errors name everything that is wrong.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	orTime(&cfg.Timeout, 10*time.Second)
	target, err := parseWebhookURL(cfg.URL)
	key, keyErr := parseSecret(cfg.Secret)
	if err = errors.Join(err, keyErr); err != nil {
		return nil, fmt.Errorf("configure webhook: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	transport.MaxResponseHeaderBytes = 64 << 10
	return &Webhook{
		url: cfg.URL, shown: target.Scheme + "://" + target.Host, key: key,
		client: &http.Client{
			Transport: transport,
			Timeout:   cfg.Timeout,
			// A receiver that has moved is to be configured anew: following would send
			// people's data to wherever an answer points.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func parseWebhookURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("url: can't be parsed") // the error would show it, and it may hold a secret
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("url: not of the form https://host/path")
	}
	return u, nil
}

func parseSecret(s string) ([]byte, error) {
	key := []byte(s)
	if encoded, ok := strings.CutPrefix(s, secretPrefix); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("secret: what follows whsec_ is no base64")
		}
	}
	if len(key) < secretLeast {
		return nil, fmt.Errorf("secret: has %d bytes, needs at least %d: make one with `echo whsec_$(openssl rand -base64 32)`", len(key), secretLeast)
	}
	return key, nil
}

// webhookBody is what is posted. The event is the CloudEvents object that a browser
// would have got.
type webhookBody struct {
	Type      string      `json:"type"`
	Timestamp string      `json:"timestamp"`
	Data      webhookData `json:"data"`
}

type webhookData struct {
	User   string          `json:"user"`
	Reason string          `json:"reason"`
	Event  json.RawMessage `json:"event"`
}

// webhookTime is ISO 8601, as the specification asks.
const webhookTime = "2006-01-02T15:04:05.000Z07:00"

// Send posts a notice. The body is the same at each try, the timestamp is not: it
// is what a receiver checks against replays.
func (w *Webhook) Send(ctx context.Context, n Notice) error {
	body, err := encodeNotice(n)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post notice: %w", withoutURL(err))
	}
	id, at := n.ID(), strconv.FormatInt(time.Now().Unix(), 10)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "lastmile")
	// Header names in lower case, as the specification writes them; HTTP/1 receivers
	// must not care.
	request.Header.Set("webhook-id", id)
	request.Header.Set("webhook-timestamp", at)
	request.Header.Set("webhook-signature", w.sign(id, at, body))
	response, err := w.client.Do(request)
	if err != nil {
		return fmt.Errorf("post notice: %w", withoutURL(err))
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, answerMost) // the status has said everything
	return judgeAnswer(response)
}

func encodeNotice(n Notice) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // the event's own tokens stay as they were written
	err := encoder.Encode(webhookBody{
		Type:      "notification",
		Timestamp: n.At.UTC().Format(webhookTime),
		Data:      webhookData{User: string(n.User), Reason: string(n.Reason), Event: n.Event.Body},
	})
	if err != nil {
		return nil, errors.New("encode notice: the event's body is no JSON")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (w *Webhook) sign(id, at string, body []byte) string {
	mac := hmac.New(sha256.New, w.key)
	fmt.Fprintf(mac, "%s.%s.", id, at)
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func judgeAnswer(r *http.Response) error {
	switch {
	case r.StatusCode >= 200 && r.StatusCode < 300:
		return nil
	case r.StatusCode == http.StatusGone:
		return fmt.Errorf("post notice: %w", ErrSinkDisabled)
	}
	e := &SinkError{Status: r.StatusCode}
	if s, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = min(time.Duration(min(s, 3600))*time.Second, retryAfterMost)
	}
	return fmt.Errorf("post notice: %w", e)
}

// withoutURL takes away what http puts before an error: the URL may hold a secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// String is scheme and host.
func (w *Webhook) String() string { return w.shown }

// Close closes idle connections.
func (w *Webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}
