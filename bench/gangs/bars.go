// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// Bar is one promise with its measured value.
type Bar struct {
	Cell    string  `json:"cell"`
	Promise string  `json:"promise"`
	Want    string  `json:"want"`
	Got     string  `json:"got"`
	Value   float64 `json:"value"`
	Kept    bool    `json:"kept"`
}

// barKey is a cell that has bars of its own.
type barKey struct {
	mix  string
	load float64
}

// overKueue returns the least lead of ours over Kueue's rule, in points of gangs in one rack of
// the Lingjun fabric, with a topology wait timeout of 0.
func overKueue() map[barKey]float64 {
	return map[barKey]float64{
		{mixTrain, 0.7}: 4, {mixTrain, 0.9}: 10, {mixTrain, 0.95}: 6,
		{mixFrag, 0.7}: 8, {mixFrag, 0.9}: 10, {mixFrag, 0.95}: 8,
		{mixBig, 0.7}: 4, {mixBig, 0.9}: 9, {mixBig, 0.95}: 9,
	}
}

// checkedLoad is the load of the bars on topology wait timeouts.
const checkedLoad = 0.9

// patient returns the least share of the gangs in one rack with a topology wait timeout of 900
// s at that load, in %.
func patient() map[string]float64 {
	return map[string]float64{mixTrain: 93, mixFrag: 96, mixBig: 82}
}

// largeBars returns the least lead of ours with a topology wait timeout of 300 s over Kueue's
// rule, in points of gangs in one rack of the large fabric.
func largeBars() map[barKey]float64 {
	return map[barKey]float64{
		{mixTrain, 0.9}: 1, {mixTrain, 0.95}: 2.5, {mixBig, 0.9}: 2.5, {mixBig, 0.95}: 4,
	}
}

// Promises for every cell of a fabric.
const (
	racksOver      = 1.03  // racks used over the fewest possible, on the Lingjun fabric
	racksOverLarge = 1.015 // the same on the large one
	waitFactor     = 1.05  // mean wait of gangs, relative to Kueue's
	behindKueue    = -1    // points of gangs in one rack, on the large fabric
	bestBand       = 99.5  // % of the pods with several GPUs, on the large fabric
	planMs         = 5     // 99th percentile, up to planPods pods
	planPods       = 64
	planMsMost     = 50 // of any gang
)

// Promises that every cell makes for every topology wait timeout.
const (
	promiseCarriedOut = "plans not carried out"
	promiseLevel      = "levels worse than possible"
	promiseOneModel   = "gangs on several models"
	promiseAllRan     = "pods that never ran"
)

// checker collects the bars of a cell.
type checker struct {
	cell string
	bars []Bar
}

func (k *checker) add(promise, want, got string, v float64, kept bool) {
	k.bars = append(k.bars, Bar{Cell: k.cell, Promise: promise, Want: want, Got: got, Value: v, Kept: kept})
}

func (k *checker) atLeast(promise string, want, v float64, unit string) {
	k.add(promise, fmt.Sprintf("≥ %g%s", want, unit), decimals(v, 2)+unit, v, v >= want)
}

func (k *checker) atMost(promise string, want, v float64, unit string) {
	k.add(promise, fmt.Sprintf("≤ %g%s", want, unit), decimals(v, 3)+unit, v, v <= want)
}

// none adds a promise that something never happens.
func (k *checker) none(promise string, v float64) {
	k.add(promise, "0", fmt.Sprint(v), v, v == 0)
}

// barsOf compares a cell with the promises for such cells.
func barsOf(c *CellSummary) []Bar {
	k := &checker{cell: c.Cluster + ", " + c.String()}
	for i := range c.Policies {
		if p := &c.Policies[i]; p.Policy == sim.Ours {
			k.none(p.String()+": "+promiseCarriedOut, float64(p.NotCarriedOut))
			k.none(p.String()+": "+promiseLevel, p.LevelRegret)
		}
	}
	mine, theirs := c.policy(ours(0)), c.policy(Variant{Policy: kueue})
	if mine == nil || theirs == nil || c.PodPolicy != "" {
		return k.bars
	}
	if c.Cluster == largeName {
		k.large(c, mine, theirs)
		return k.bars
	}
	key := barKey{c.Mix, c.Load}
	if want, ok := overKueue()[key]; ok {
		k.atLeast("gangs in one rack, ours less Kueue's rule", want, 100*(mine.OneRack-theirs.OneRack), " points")
	}
	k.atMost("racks over the fewest possible", racksOver, mine.RacksOver, "")
	k.wait(mine, theirs)
	if p := c.policy(ours(900)); p != nil && c.Load == checkedLoad {
		k.atLeast("gangs in one rack, 900 s of patience", patient()[c.Mix], 100*p.OneRack, " %")
	}
	return k.bars
}

// wait compares the mean waits. They are 0 where the cluster has room.
func (k *checker) wait(mine, theirs *PolicySummary) {
	ratio := 1.0
	if theirs.WaitS > 0 {
		ratio = mine.WaitS / theirs.WaitS
	} else if mine.WaitS > 0 {
		k.atMost("mean wait of gangs where Kueue's have none", 0, mine.WaitS, " s")
		return
	}
	k.atMost("mean wait of gangs by Kueue's", waitFactor, ratio, "")
}

func (k *checker) large(c *CellSummary, mine, theirs *PolicySummary) {
	k.atLeast("gangs in one rack, ours less Kueue's rule", behindKueue, 100*(mine.OneRack-theirs.OneRack), " points")
	k.atMost("racks over the fewest possible", racksOverLarge, mine.RacksOver, "")
	k.atLeast("pods in the best band", bestBand, 100*mine.BestBand, " %")
	if p := c.policy(ours(300)); p != nil {
		k.atLeast("gangs in one rack, 300 s of patience less Kueue's rule", largeBars()[barKey{c.Mix, c.Load}],
			100*(p.OneRack-theirs.OneRack), " points")
	}
}

// planBars compares the times of plans with the promises.
func planBars(plans []PlanTime) []Bar {
	k := &checker{cell: "plans at 5000 nodes"}
	for _, p := range plans {
		want := float64(planMsMost)
		if p.Pods <= planPods {
			want = planMs
		}
		k.atMost(fmt.Sprintf("99th percentile for %d pods", p.Pods), want, p.P99Ms, " ms")
	}
	return k.bars
}

func missedOf(bars []Bar) (missed int) {
	for i := range bars {
		if !bars[i].Kept {
			missed++
		}
	}
	return missed
}
