// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// build is the cost of the tables of one machine, in µs.
type build struct {
	Machine string        `json:"machine"`
	GPUs    int           `json:"gpus"`
	New     report.Sample `json:"newUs"`             // NewTables: everything, up to 8 GPUs
	First   report.Sample `json:"firstUs,omitempty"` // NewTables and the first answer table
	All     report.Sample `json:"allUs,omitempty"`   // NewTables and Prepare
	Tables  int           `json:"answerTables"`
	Bytes   int           `json:"bytesPerClass"`
}

// measureBuild measures the builds, and leaves the last built tables in b.
func measureBuild(ctx context.Context, b *bed, repeats int) (build, error) {
	out := build{Machine: b.name, GPUs: b.graph.Len(), Tables: 1}
	for range repeats {
		const eager = 8 // GPUs up to which NewTables builds everything, in microseconds: average some
		n := 1
		if out.GPUs <= eager {
			n = 20
		}
		var t *nvtopo.Tables
		start := time.Now()
		for range n {
			t = nvtopo.NewTables(b.graph, nvtopo.DefaultWeights())
		}
		took := time.Since(start)
		out.New = append(out.New, micros(took)/float64(n))
		out.Bytes, b.tables = t.Bytes(), t
		if out.GPUs <= eager {
			continue
		}
		appeared, all, err := prepare(ctx, t)
		if err != nil {
			return out, fmt.Errorf("building the tables of %s: %w", b.name, err)
		}
		out.First = append(out.First, micros(took+appeared[0]))
		out.All = append(out.All, micros(took+all))
		out.Tables, out.Bytes = len(appeared), t.Bytes()
	}
	return out, nil
}

// prepare returns when each answer table appeared. The library builds them in
// one call; from outside only the growth of the memory is visible, here to half
// a millisecond.
func prepare(ctx context.Context, t *nvtopo.Tables) (appeared []time.Duration, all time.Duration, err error) {
	start, before := time.Now(), t.Bytes()
	done := make(chan error, 1)
	go func() { done <- t.Prepare(ctx) }()
	look := func() {
		if now := t.Bytes(); now > before {
			before = now
			appeared = append(appeared, time.Since(start))
		}
	}
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			all = time.Since(start)
			look()
			return appeared, all, err
		case <-tick.C:
			look()
		}
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
