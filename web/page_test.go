package web_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// browser gives a tab of a Chromium of its own, or skips where there is none. Tabs are expensive, so
// these tests don't run beside each other.
func browser(t *testing.T, width, height int, flags ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	testkit.Require(t, "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(testkit.Chromium()), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(width, height))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(options, flags...)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func run(t *testing.T, ctx context.Context, steps ...step) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func evaluate[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

type step = chromedp.Action[chromedp.Void]

func signIn(url, name string) step {
	return chromedp.Steps(
		chromedp.Navigate(url),
		chromedp.SendKeys(id("login-name"), name),
		chromedp.Click(id("login-submit")),
		chromedp.WaitVisible(chromedp.CSS(`[data-testid=connection][data-state=online]`)),
	)
}

func id(testid string) chromedp.CSS { return chromedp.CSS(fmt.Sprintf("[data-testid=%q]", testid)) }

// until polls the page: nothing there tells us when it is done.
func until(expression string) step {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(20*time.Second)))
		if err != nil {
			return fmt.Errorf("wait for %s: %w", expression, err)
		}
		return nil
	})
}

func texts(t *testing.T, ctx context.Context) []string {
	t.Helper()
	return evaluate[[]string](t, ctx, `[...document.querySelectorAll("[data-testid=message] .text")].map((e) => e.textContent)`)
}

const count = `document.querySelectorAll("[data-testid=message]").length`

func write(text string) step {
	return chromedp.Steps(chromedp.SendKeys(id("composer"), text), chromedp.Click(id("send")))
}

// shoot keeps a picture for people to look at, where LASTMILE_TEST_SCREENSHOTS names a folder.
func shoot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	folder := os.Getenv("LASTMILE_TEST_SCREENSHOTS")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPageShowsMessagesInTheServersOrder(t *testing.T) {
	f := newFakeChat(t)
	at := time.Now().Add(-26 * time.Hour)
	f.quiet("m1", "bob", "Bob", "Did the relay come back after the power cut?", at)
	f.quiet("m2", "bob", "Bob", "I can't see it from here.", at.Add(time.Minute))
	f.quiet("m3", "alice", "Alice", "Yes: it took its partition after four seconds and went on where it was.", at.Add(3*time.Minute))
	f.quiet("m4", "carol", "Carol Ramírez", "Nothing twice, nothing missing. The notes are at https://example.org/notes?id=7, by the way.", time.Now().Add(-20*time.Minute))
	f.quiet("m5", "dave", "דוד", "שלום לכולם 👋", time.Now().Add(-18*time.Minute))
	for _, look := range []struct {
		name          string
		width, height int
		flags         []chromedp.ExecAllocatorOption
	}{
		{"light", 1180, 760, nil},
		{"dark", 1180, 760, []chromedp.ExecAllocatorOption{chromedp.Flag("force-dark-mode", true), chromedp.Flag("blink-settings", "preferredColorScheme=0")}},
		{"phone", 390, 780, nil},
	} {
		t.Run(look.name, func(t *testing.T) {
			ctx := browser(t, look.width, look.height, look.flags...)
			// A window can't be as narrow as a phone; its picture can.
			run(t, ctx, chromedp.EmulateViewport(int64(look.width), int64(look.height)), chromedp.Navigate(f.URL), chromedp.WaitVisible(id("login-name")))
			shoot(t, ctx, look.name+"-login")
			run(t, ctx, signIn(f.URL, "Alice"), until(count+" >= 5"))
			f.say("live-"+look.name, "bob", "Bob", "Said just now, "+look.name, time.Now())
			run(t, ctx, until(`document.querySelector("[data-testid=messages]").textContent.includes("just now, `+look.name+`")`))
			run(t, ctx, write("Thanks!"), until(`document.querySelectorAll("[data-testid=message][data-state=pending]").length === 0`))
			got := texts(t, ctx)
			if got[0] != "Did the relay come back after the power cut?" || got[len(got)-1] != "Thanks!" {
				t.Errorf("order: %q", got)
			}
			if evaluate[bool](t, ctx, `document.documentElement.scrollWidth > innerWidth`) {
				t.Error("the page is wider than its window")
			}
			shoot(t, ctx, look.name)
			if look.name == "phone" {
				run(t, ctx, chromedp.Click(chromedp.CSS("#rooms-toggle")), until(`document.querySelector("#sidebar").getBoundingClientRect().left === 0`))
				shoot(t, ctx, "phone-rooms")
				run(t, ctx, chromedp.Click(id("room-plans")), until(`document.querySelector("#room-title").textContent === "Plans for the weekend"`))
				run(t, ctx, chromedp.WaitVisible(chromedp.CSS("#empty")))
			}
		})
	}
}

// TestCase_F09_MarkupIsText has markup, quotes and marks of direction in every field that a peer fills.
func TestCase_F09_MarkupIsText(t *testing.T) {
	f := newFakeChat(t)
	hostile := []string{
		`<img src=x onerror="window.pwned=1">`,
		`"><script>window.pwned=1</script>`,
		`javascript:window.pwned=1 https://example.org/"onmouseover="window.pwned=1`,
		"\u202eevil\u202c \u2066x",
		strings.Repeat("W", 10_000),
		"👩‍👩‍👧‍👦 e\u0301\u0301\u0301",
	}
	for i, text := range hostile {
		f.quiet(fmt.Sprintf(`m%d"><b>`, i), "mallory", hostile[(i+1)%len(hostile)][:min(60, len(hostile[(i+1)%len(hostile)]))], text, time.Now())
	}
	for _, createdAt := range []any{`<img src=x onerror="window.pwned=1">`, "no date", nil, -1e300} {
		f.quiet(fmt.Sprint("t", createdAt), `mal"'<b>lory`, hostile[0], "time", time.Now())
		f.set(func() { f.messages[len(f.messages)-1]["createdAt"] = createdAt })
	}
	ctx := browser(t, 800, 600)
	run(t, ctx, signIn(f.URL, hostile[0]), until(fmt.Sprintf("%s === %d", count, len(hostile)+4)))
	for i, got := range texts(t, ctx)[:len(hostile)] {
		if got != hostile[i] {
			t.Errorf("text %d: %.80q, want %.80q", i, got, hostile[i])
		}
	}
	type look struct {
		Pwned  bool     `json:"pwned"`
		Markup bool     `json:"markup"`
		Wide   bool     `json:"wide"`
		Links  []string `json:"links"`
	}
	found := evaluate[look](t, ctx, `({
		pwned: "pwned" in window,
		markup: document.querySelectorAll(".messages img, .messages script, .messages b").length > 0,
		wide: document.documentElement.scrollWidth > innerWidth,
		links: [...document.querySelectorAll(".messages a")].map((a) => a.href),
	})`)
	if found.Pwned || found.Markup || found.Wide {
		t.Errorf("page: %+v", found)
	}
	if len(found.Links) != 1 || found.Links[0] != "https://example.org/" {
		t.Errorf("links: %q", found.Links)
	}
	shoot(t, ctx, "hostile")
}

// TestCase_F11_LostAnswerIsOneLine loses the confirmation of a stored message.
func TestCase_F11_LostAnswerIsOneLine(t *testing.T) {
	f := newFakeChat(t)
	ctx := browser(t, 800, 600)
	run(t, ctx, signIn(f.URL, "Alice"))
	f.set(func() { f.lose = true })
	run(t, ctx, write("once"), until(`document.querySelectorAll("[data-testid=message][data-state=sent]").length === 1`))
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := texts(t, ctx); len(got) != 1 || len(f.messages) != 1 {
		t.Errorf("%d lines, %d stored", len(got), len(f.messages))
	}
}

func TestPageKeepsWhatCouldNotBeSent(t *testing.T) {
	f := newFakeChat(t)
	ctx := browser(t, 800, 600)
	run(t, ctx, signIn(f.URL, "Alice"))
	f.set(func() { f.refusing = "text: the server does not like it" })
	run(t, ctx, write("hello"), chromedp.WaitVisible(chromedp.CSS(`[data-testid=message][data-state=failed] .failure`)))
	if told := evaluate[string](t, ctx, `document.querySelector(".failure span").textContent`); !strings.Contains(told, "does not like it") {
		t.Errorf("failure says %q", told)
	}
	shoot(t, ctx, "failed")
	run(t, ctx, chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS(`[data-testid=message][data-state=failed] .failure`)))
	f.set(func() { f.refusing = "" })
	run(t, ctx, chromedp.Click(chromedp.CSS(".failure button")), chromedp.WaitVisible(chromedp.CSS(`[data-testid=message][data-state=sent]`)))
	if got := texts(t, ctx); len(got) != 1 {
		t.Errorf("lines: %q", got)
	}
}

// TestCase_F12_ResyncKeepsPending cuts the connection while a message is on its way and others were said.
func TestCase_F12_ResyncKeepsPending(t *testing.T) {
	f := newFakeChat(t)
	ctx := browser(t, 800, 600)
	run(t, ctx, signIn(f.URL, "Alice"))
	f.say("b1", "bob", "Bob", "before", time.Now())
	run(t, ctx, until(count+" === 1"))
	f.set(func() { f.failing = 1 << 30 })
	run(t, ctx, write("mine"), until(count+" === 2"))
	f.quiet("b2", "bob", "Bob", "missed", time.Now())
	f.drop()
	run(t, ctx, until(`[...document.querySelectorAll("[data-testid=message] .text")].map((e) => e.textContent).join() === "before,missed,mine"`))
	run(t, ctx, chromedp.WaitVisible(chromedp.CSS(`[data-testid=message][data-state=pending]`)))
	run(t, ctx, until(`document.querySelector("[data-testid=server]").textContent === "server-2-abcdef012345"`))
	f.set(func() { f.failing = 0 })
	run(t, ctx, until(`document.querySelectorAll("[data-testid=message][data-state=sent]").length === 3`))
	if got := texts(t, ctx); len(got) != 3 {
		t.Errorf("lines: %q", got)
	}
	// A reload of the page shows the same.
	run(t, ctx, chromedp.Reload(), until(count+" === 3"))
}

// TestPageLeavesNoHole misses more than a page of the history holds.
func TestPageLeavesNoHole(t *testing.T) {
	f := newFakeChat(t)
	ctx := browser(t, 800, 600)
	f.quiet("first", "bob", "Bob", "first", time.Now())
	run(t, ctx, signIn(f.URL, "Alice"), until(count+" === 1"))
	for i := range 80 {
		f.quiet(fmt.Sprint("q", i), "bob", "Bob", fmt.Sprint("line ", i), time.Now())
	}
	f.drop()
	run(t, ctx, until(count+" === 50"), chromedp.Click(chromedp.CSS("#older")), until(count+" === 81"))
	got := texts(t, ctx)
	if got[0] != "first" || got[1] != "line 0" || got[80] != "line 79" {
		t.Errorf("lines: %q … %q", got[:2], got[80])
	}
}

// TestPageShowsTheServerAfterAHandOver asks the page to move while its connection is good.
func TestPageShowsTheServerAfterAHandOver(t *testing.T) {
	f := newFakeChat(t)
	ctx := browser(t, 800, 600)
	run(t, ctx, signIn(f.URL, "Alice"))
	f.set(func() { f.sendLocked(map[string]any{"type": "goaway", "reconnectAfter": 0, "reason": "drain"}) })
	run(t, ctx, until(`document.querySelector("[data-testid=server]").textContent === "server-2-abcdef012345"`))
	f.say("after", "bob", "Bob", "on the new one", time.Now())
	run(t, ctx, until(count+" === 1"))
	if state := evaluate[string](t, ctx, `document.querySelector("[data-testid=connection]").dataset.state`); state != "online" {
		t.Errorf("state %s", state)
	}
}
