// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"testing"
)

func BenchmarkPickTable8(b *testing.B) { benchmarkPick(b, testTables(b, "dgx1v"), 4, Constraint{}) }

func BenchmarkPickTable8SingleNUMA(b *testing.B) {
	benchmarkPick(b, testTables(b, "dgx1v"), 4, Constraint{Policy: PolicySingleNUMANode, MinLink: Class{Kind: KindNVLink, Lanes: 1}})
}

func BenchmarkPickTable16(b *testing.B) {
	t := testTables(b, "dgx2")
	if err := t.Prepare(b.Context()); err != nil {
		b.Fatal(err)
	}
	benchmarkPick(b, t, 8, Constraint{})
}

// BenchmarkPickCold is the walk over subsets that answers before Prepare.
func BenchmarkPickCold(b *testing.B) { benchmarkPick(b, testTables(b, "dgx2"), 8, Constraint{}) }

func benchmarkPick(b *testing.B, t *Tables, k int, c Constraint) {
	b.Helper()
	all := t.Graph().Healthy()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		free := all &^ (1 << (i & 7))
		i++
		if s, ok := t.Pick(free, all, k, c); ok && s.Len() != k {
			b.Fatalf("picked %v", s.Positions())
		}
	}
}

func BenchmarkBuild8(b *testing.B) { benchmarkBuild(b, "dgx1v") }

func BenchmarkBuild8Irregular(b *testing.B) { benchmarkBuild(b, "irregular") }

func benchmarkBuild(b *testing.B, name string) {
	b.Helper()
	g := machines()[name].graph(b)
	var t *Tables
	for b.Loop() {
		t = NewTables(g, DefaultWeights())
	}
	b.ReportMetric(float64(t.Bytes()), "B/class")
}

// BenchmarkNew16 measures building the tables of a graph of 16 GPUs.
func BenchmarkNew16(b *testing.B) {
	g := machines()["dgx2"].graph(b)
	for b.Loop() {
		NewTables(g, DefaultWeights())
	}
}

// BenchmarkBuild16 adds one answer table for all k.
func BenchmarkBuild16(b *testing.B) {
	g := machines()["dgx2"].graph(b)
	var t *Tables
	for b.Loop() {
		t = NewTables(g, DefaultWeights())
		t.c.answer(b.Context().Done(), t.c.variant(&Constraint{}))
	}
	b.ReportMetric(float64(t.Bytes()), "B/class")
}

func BenchmarkResidual(b *testing.B) {
	t := testTables(b, "dgx1v")
	for b.Loop() {
		t.Residual(0x5f)
	}
}
