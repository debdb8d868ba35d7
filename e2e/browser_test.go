package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// browser starts a Chromium with a fresh profile that ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := testkit.Chromium()
	if path == "" {
		testkit.Require(t, "chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.NoFirstRun, chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		stop()
		stopAllocator()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return ctx
}

// window is one window of a browser with the chat page.
type window struct {
	t   *testing.T
	ctx context.Context
}

// openChat opens the page in a window of its own profile and logs in.
func openChat(t *testing.T, parent context.Context, url, name string) *window {
	t.Helper()
	ctx, stop := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	// The first call makes the tab, which ends with that call's context.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a window: %v", err)
	}
	w := &window{t: t, ctx: ctx}
	w.run("open "+url, chromedp.EmulateViewport(1100, 760), chromedp.Navigate(url))
	w.logIn(name)
	return w
}

func (w *window) logIn(name string) {
	w.t.Helper()
	w.run("log in as "+name,
		chromedp.WaitVisible(`[data-testid=login-name]`),
		chromedp.SendKeys(`[data-testid=login-name]`, name),
		chromedp.Click(`[data-testid=login-submit]`),
		chromedp.WaitVisible(`[data-testid=connection][data-state=online]`),
	)
}

func (w *window) run(what string, steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	limited, cancel := context.WithTimeout(w.ctx, limit(20*time.Second))
	defer cancel()
	if err := chromedp.Do(limited, steps...); err != nil {
		w.t.Fatalf("%s: %v; the page shows:\n%s", what, err, w.page())
	}
}

// page is what a person reads on the page, for the report of a failure.
func (w *window) page() string {
	limited, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(limited, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// read runs an action that answers something.
func read[T any](w *window, what string, action chromedp.Action[T]) T {
	w.t.Helper()
	limited, cancel := context.WithTimeout(w.ctx, limit(20*time.Second))
	defer cancel()
	value, err := chromedp.Run(limited, action)
	if err != nil {
		w.t.Fatalf("read %s: %v", what, err)
	}
	return value
}

func (w *window) say(text string) {
	w.t.Helper()
	w.run("say "+text,
		chromedp.SendKeys(`[data-testid=composer]`, text),
		chromedp.Click(`[data-testid=send]`),
	)
}

// texts are the lines that the page shows, in order.
func (w *window) texts() []string {
	w.t.Helper()
	return read(w, "messages", chromedp.Evaluate[[]string](
		`[...document.querySelectorAll('[data-testid=message] .text')].map(e => e.textContent)`))
}

func (w *window) server() string {
	w.t.Helper()
	return strings.TrimSpace(read(w, "server", chromedp.Text(`[data-testid=server]`)))
}

func (w *window) awaitTexts(want ...string) {
	w.t.Helper()
	var got []string
	reached := func() bool {
		got = w.texts()
		return strings.Join(got, "\n") == strings.Join(want, "\n")
	}
	deadline := time.Now().Add(limit(10 * time.Second))
	testkit.Eventually(w.t, limit(12*time.Second), fmt.Sprintf("the page shows %q", want), func() bool {
		if reached() {
			return true
		}
		if time.Now().After(deadline) {
			w.t.Logf("the page shows %q", got)
		}
		return false
	})
}

// Two people, two socket servers, messages both ways, a reload in between, and a second device of one.
func TestTwoBrowsersChatAcrossTwoServers(t *testing.T) {
	t.Parallel()
	chromium := browser(t)
	s, _ := startDev(t)
	ada := openChat(t, chromium, s.Chat+"/?server=1", "Ada")
	ben := openChat(t, chromium, s.Chat+"/?server=2", "Ben")
	if a, b := ada.server(), ben.server(); !strings.HasPrefix(a, "dev-1-") || !strings.HasPrefix(b, "dev-2-") {
		t.Fatalf("served by %q and %q: want the first server and the second", a, b)
	}
	said := []string{"hello Ben", "hello Ada", `<b>bold?</b> & "quoted"`}
	ada.say(said[0])
	ben.awaitTexts(said[:1]...)
	ben.say(said[1])
	ada.awaitTexts(said[:2]...)

	ben.run("reload", chromedp.Reload())
	ben.run("online again", chromedp.WaitVisible(`[data-testid=connection][data-state=online]`))
	ben.awaitTexts(said[:2]...)
	ada.say(said[2])
	ben.awaitTexts(said...)
	ada.awaitTexts(said...)

	second := openChat(t, chromium, s.Chat+"/?server=2", "Ada")
	second.awaitTexts(said...)
	said = append(said, "from my other device")
	second.say(said[3])
	for _, w := range []*window{ada, ben, second} {
		w.awaitTexts(said...)
	}
	ada.run("every message is sent", chromedp.WaitNotPresent(`[data-testid=message][data-state=pending]`))
	s.awaitSettled(t, 10*time.Second)
}
