// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// viewersCommand is the first argument of the process of the viewers. It follows the stream until
// its input ends, and writes seen in JSON: when all follow, and at the end.
const viewersCommand = "viewers"

// seen is the viewers' results: each of them got at least Events events.
type seen struct{ Events, Bytes int64 }

// view makes viewers follow the stream at an address.
func view(ctx context.Context, address string, viewers int, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	events := make([]atomic.Int64, viewers)
	var read atomic.Int64
	failed := make(chan error, viewers)
	ready := make(chan struct{}, viewers)
	for i := range viewers {
		all.Go(func() {
			if err := followOne(ctx, address, ready, &events[i], &read); ctx.Err() == nil {
				failed <- err
			}
		})
	}
	for range viewers {
		select {
		case <-ready:
		case err := <-failed:
			return err
		}
	}
	told := json.NewEncoder(out)
	if err := told.Encode(seen{}); err != nil {
		return fmt.Errorf("say that all follow: %w", err)
	}
	_, _ = io.Copy(io.Discard, in) // it ends when the measuring process closes it
	select {
	case err := <-failed:
		return err
	default:
	}
	least := int64(0)
	for i := range events {
		if n := events[i].Load(); i == 0 || n < least {
			least = n
		}
	}
	cancel()
	all.Wait()
	return told.Encode(seen{least, read.Load()})
}

// followOne reads one stream until ctx ends.
func followOne(ctx context.Context, address string, ready chan<- struct{}, events, read *atomic.Int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/stream", http.NoBody)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{}} // a connection of its own, as a browser has
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("follow: %s", answer.Status)
	}
	ready <- struct{}{}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		read.Add(int64(len(lines.Bytes()) + 1))
		if strings.HasPrefix(lines.Text(), "event: workloads") {
			events.Add(1)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	return errors.New("follow: the stream ended")
}
