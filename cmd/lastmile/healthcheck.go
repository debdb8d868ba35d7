package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

type healthcheckCommand struct {
	URL     string        `default:"http://127.0.0.1:9080/readyz" help:"Readiness page of the process to ask."`
	Timeout time.Duration `default:"3s" help:"How long the answer may take."`
}

// Run ends with nil when the page answers 200, and with the page's reason otherwise.
func (c healthcheckCommand) Run(ctx context.Context, std streams) error {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, c.URL, nil)
	if err != nil {
		return fmt.Errorf("--url %s: %w", c.URL, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w: is the process running, with that --internal-listen?", c.URL, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("read %s: %w", c.URL, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready (%s): %s", response.Status, strings.TrimSpace(string(body)))
	}
	fmt.Fprintln(std.out, "ready")
	return nil
}
