// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// exactly compares the hours of charges.
var exactly = cmp.Comparer(func(a, b *big.Rat) bool { return a.Cmp(b) == 0 })

// TestRateOracle: the rate agrees with the oracle's.
func TestRateOracle(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 17))
		compare(t, fmt.Sprintf("seed %d", seed), randomBook(rng), randomSessions(rng, 1+rng.IntN(40)))
	}
}

// TestChangingPricesOracle: the rate agrees with the oracle's while prices change, and after ended
// sessions were fixed and the book was replaced by any other.
func TestChangingPricesOracle(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 19))
		b, sessions := randomBook(rng).changing(rng), randomSessions(rng, 1+rng.IntN(40))
		compare(t, fmt.Sprintf("seed %d", seed), b, sessions)
		fixed := b.fixing(sessions, rng.Int64N(40)*3600)
		other := randomBook(rng).changing(rng)
		compare(t, fmt.Sprintf("seed %d, another book", seed), other, fixed)
		if b.period || other.period {
			continue // a period's discount is known at its end
		}
		was, is := b.cents(sessions), other.cents(fixed)
		for i := range fixed {
			if fixed[i].fixed != nil && was[i] != is[i] {
				t.Fatalf("seed %d: session %s cost %d cents when it ended, and %d by another book", seed, fixed[i].id, was[i], is[i])
			}
		}
	}
}

// TestTenThousandSessions is the must-show of the requirement: ten thousand sessions to the cent.
func TestTenThousandSessions(t *testing.T) {
	rng := rand.New(rand.NewPCG(44, 17))
	b := randomBook(rng)
	b.tiers, b.period = []plainTier{{100, 900}, {500, 800}, {1000, 700}}, false
	compare(t, "10000 sessions", b, randomSessions(rng, 10_000))
}

func compare(t *testing.T, what string, plain plainBook, sessions []plainSession) {
	t.Helper()
	want, ours := map[string]string{}, make([]Session, len(sessions))
	var total int64
	for i, cents := range plain.cents(sessions) {
		want[sessions[i].id] = fmt.Sprintf("%d.%02d", cents/100, cents%100)
		ours[i] = sessions[i].session(t)
		total += cents
	}
	charges, err := Rate(plain.book(t), ours)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := map[string]string{}
	for _, c := range charges {
		got[c.Session.ID] = c.Cost.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s, %+v (-want,+got):\n%s", what, plain, diff)
	}
	if sum := Sum(charges).String(); sum != fmt.Sprintf("%d.%02d", total/100, total%100) {
		t.Errorf("%s: sum %s, want %d cents", what, sum, total)
	}
}

// TestOrderAndRepetition: order and repetition of sessions do not matter.
func TestOrderAndRepetition(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b, plain := randomBook(rng).book(t), randomSessions(rng, 20)
		sessions := make([]Session, len(plain))
		for i, s := range plain {
			sessions[i] = s.session(t)
		}
		want, err := Rate(b, sessions)
		if err != nil {
			t.Fatal(err)
		}
		mixed := slices.Concat(sessions, sessions[:5])
		rng.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		rng.Shuffle(len(b.Prices), func(i, j int) { b.Prices[i], b.Prices[j] = b.Prices[j], b.Prices[i] })
		got, err := Rate(b, mixed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, exactly); diff != "" {
			t.Fatalf("seed %d (-want,+got):\n%s", seed, diff)
		}
	}
}

// TestSplitSessionCost: a session that is split costs as much as the whole, except for half a cent of
// rounding per piece, where its hours are added up: without discounts, and over a period.
func TestSplitSessionCost(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		plain := randomBook(rng)
		plain.min, plain.period = 0, true
		if rng.IntN(3) == 0 {
			plain.tiers, plain.period = nil, false
		}
		b := plain.book(t)
		whole := randomSessions(rng, 1)[0].session(t)
		var pieces []Session
		for at := whole.Start; at.Before(whole.End) || len(pieces) == 0; at = pieces[len(pieces)-1].End {
			piece := whole
			piece.ID, piece.Start = fmt.Sprintf("piece-%04d", len(pieces)), at
			if next := at.Add(time.Duration(1 + rng.Int64N(int64(4*time.Hour)))); next.Before(whole.End) {
				piece.End = next
			}
			pieces = append(pieces, piece)
		}
		one, errOne := Rate(b, []Session{whole})
		many, errMany := Rate(b, pieces)
		if errOne != nil || errMany != nil {
			t.Fatal(errOne, errMany)
		}
		hours := new(big.Rat)
		for _, c := range many {
			hours.Add(hours, c.Hours)
		}
		if hours.Cmp(one[0].Hours) != 0 {
			t.Fatalf("seed %d: %s hours in pieces, %s whole", seed, hours, one[0].Hours)
		}
		off := Sum(many).Minus(one[0].Cost).int().Int64()
		if 2*max(off, -off) > int64(len(many))+1 {
			t.Fatalf("seed %d: %d pieces cost %s, the whole %s", seed, len(many), Sum(many), one[0].Cost)
		}
	}
}

// TestMarginalTierContinuity: with marginal tiers one more second never costs less, and never more
// than at full price.
func TestMarginalTierContinuity(t *testing.T) {
	step := big.NewRat(1, 3600)
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 7))
		plain := randomBook(rng)
		plain.marginal = true
		b := plain.book(t)
		at := []*big.Rat{new(big.Rat), big.NewRat(rng.Int64N(400_000), 3600)}
		for _, d := range b.Discounts {
			at = append(at, d.ThresholdHours.Rat(), new(big.Rat).Sub(d.ThresholdHours.Rat(), step))
		}
		for _, hours := range at {
			more := b.full(new(big.Rat).Add(hours, step))
			more.Sub(more, b.full(hours))
			if more.Sign() < 0 || more.Cmp(step) > 0 {
				t.Fatalf("seed %d, %s hours: a second more costs %s hours", seed, hours, more)
			}
		}
	}
}

// TestAllUnitsJump: with all units a tier may cost less than slightly less use: that is how they are
// defined.
func TestAllUnitsJump(t *testing.T) {
	b := book(t, requirementBook)
	below, at := b.full(big.NewRat(99, 1)), b.full(big.NewRat(100, 1))
	if below.Cmp(big.NewRat(99, 1)) != 0 || at.Cmp(big.NewRat(90, 1)) != 0 {
		t.Errorf("99 hours cost %s and 100 %s, want 99 and 90", below, at)
	}
}
