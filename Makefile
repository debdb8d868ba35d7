SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 30s

.PHONY: help
help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-11s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: dev
dev: ## run everything on this machine: page, socket servers, embedded Redis and MongoDB
	go run ./cmd/lastmile dev

.PHONY: build
build: ## bin/lastmile
	go build -trimpath -o bin/lastmile ./cmd/lastmile

.PHONY: test
test: deps ## vet, all Go tests with the race detector, the browser client's tests
	go vet ./...
	scripts/test -race ./...
	cd web/client && node --test

.PHONY: test-short
test-short: ## Go tests without the slow ones and without the race detector
	scripts/test -short ./...

CHAOS ?= -seed 1 -faults 60 -for 170s -settle 90s

.PHONY: chaos
chaos: deps ## the proof: real processes, killed, frozen and cut off by a seeded schedule (CHAOS='-seed 2 …'), within 5 minutes
	go run ./e2e/chaos $(CHAOS)

.PHONY: chaos-long
chaos-long: deps ## the same with 1,000 faults; takes an hour
	go run ./e2e/chaos -seed 1 -faults 1000 -for 55m -settle 3m -rate 5

.PHONY: deps
deps: ## install what tests can use (redis-server, chromium) where that may be done, else say what is missing
	@scripts/test-deps

.PHONY: lint
lint: ## golangci-lint, where it is installed
	@command -v golangci-lint >/dev/null || { echo "lint: golangci-lint v2 is not installed: https://golangci-lint.run/docs/welcome/install/" >&2; exit 1; }
	golangci-lint run

.PHONY: fmt
fmt: ## format all Go code
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: generate
generate: ## constants of Go, browser and docs from the one table in protocol
	go generate ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	@grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' "$$file"); do \
	    echo "$$target in $$(dirname "$$file")"; \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
	  done; \
	done

.PHONY: cover
cover: ## coverage by function, and dist/cover.html
	mkdir -p dist
	scripts/test -short -coverpkg=./... -coverprofile=dist/cover.out ./...
	go tool cover -func=dist/cover.out | tail -n 1
	go tool cover -html=dist/cover.out -o dist/cover.html

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist .cache
