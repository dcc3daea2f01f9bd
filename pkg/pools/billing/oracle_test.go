// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The oracle computes bills once more, in whole numbers and by the overlap of a session's
// hours with each tier. It shares nothing with the code but its input.

// plainSession is a session in integers: seconds and thousandths of a device.
type plainSession struct {
	id, tenant, resource, model string
	start, seconds, milli       int64
	fixed                       *plainFixed
}

// plainFixed is the fixed price of an ended session: thousandths per hour, seconds and cents.
type plainFixed struct{ price, seconds, cents int64 }

// plainTier is a discount in integers: hours and thousandths.
type plainTier struct{ hours, milli int64 }

// plainPrice is a price in thousandths of the currency per hour, for sessions that end from a
// second after epoch on.
type plainPrice struct {
	resource, model string
	from, milli     int64
}

// always is the start of a price that was always valid.
const always = math.MinInt64

// plainBook is a price book in integers, with prices in any order.
type plainBook struct {
	prices   []plainPrice
	min      int64
	tiers    []plainTier
	marginal bool
	period   bool
}

// price returns the price that was valid when a session ended: that of its model, or else that of
// all, and of these the latest. ok is false if there is none.
func (b plainBook) price(s plainSession) (price int64, entry [2]string, ok bool) {
	end := s.start + s.seconds
	for _, entry := range [][2]string{{s.resource, s.model}, {s.resource, ""}} {
		latest := plainPrice{from: always}
		for _, p := range b.prices {
			if p.resource == entry[0] && p.model == entry[1] && p.from <= end && p.from >= latest.from {
				latest, ok = p, true
			}
		}
		if ok {
			return latest.milli, entry, true
		}
	}
	return 0, [2]string{s.resource, s.model}, false
}

// units returns a session's thousandths of a device times seconds.
func (b plainBook) units(s plainSession) int64 {
	if s.fixed != nil {
		return s.fixed.seconds * s.milli
	}
	return max(s.seconds, b.min) * s.milli
}

const unitsPerHour = 3600 * 1000

// cents returns the cost of each session.
func (b plainBook) cents(sessions []plainSession) []int64 {
	costs := make([]int64, len(sessions))
	for i, s := range sessions {
		price, entry, ok := b.price(s)
		if s.fixed != nil {
			price, ok = s.fixed.price, true
		}
		if !ok {
			continue
		}
		if s.fixed != nil && !b.period {
			costs[i] = s.fixed.cents
			continue
		}
		units, before, total := b.units(s), int64(0), int64(0)
		for _, o := range sessions {
			if !b.period {
				break
			}
			_, theirs, priced := b.price(o)
			if o.tenant != s.tenant || theirs != entry || o.resource != s.resource || !priced && o.fixed == nil {
				continue
			}
			total += b.units(o)
			end, ends := s.start+s.seconds, o.start+o.seconds
			if ends < end || ends == end && o.id < s.id {
				before += b.units(o)
			}
		}
		if !b.period {
			total = units
		}
		costs[i] = roundCents(b.weighted(units, before, total), price)
	}
	return costs
}

// weighted returns the discounted units times thousandths of the price.
func (b plainBook) weighted(units, before, total int64) *big.Int {
	sum := new(big.Int)
	for i := -1; i < len(b.tiers); i++ {
		from, to, milli := int64(0), int64(1)<<62, int64(1000)
		if i >= 0 {
			from, milli = b.tiers[i].hours*unitsPerHour, b.tiers[i].milli
		}
		if i+1 < len(b.tiers) {
			to = b.tiers[i+1].hours * unitsPerHour
		}
		var here int64
		switch {
		case b.marginal:
			here = max(0, min(before+units, to)-max(before, from))
		case from <= total && total < to:
			here = units
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(here), big.NewInt(milli)))
	}
	return sum
}

// roundCents divides by the factors of weighted and price, rounding half up.
func roundCents(weighted *big.Int, price int64) int64 {
	num := new(big.Int).Mul(weighted, big.NewInt(price*100))
	den := new(big.Int).Mul(big.NewInt(unitsPerHour), big.NewInt(1000*1000))
	quotient, rest := new(big.Int).QuoRem(num, den, new(big.Int))
	if rest.Add(rest, rest).Cmp(den) >= 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient.Int64()
}

// epoch is the start of the tests' sessions.
var epoch = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func (s plainSession) session(t *testing.T) Session {
	t.Helper()
	start := epoch.Add(time.Duration(s.start) * time.Second)
	out := Session{
		ID: s.id, Tenant: s.tenant, Resource: s.resource, Model: s.model, Quantity: thousandths(t, s.milli),
		Start: start, End: start.Add(time.Duration(s.seconds) * time.Second),
	}
	if s.fixed != nil {
		out.Fixed = &Fixed{UnitPrice: thousandths(t, s.fixed.price), Seconds: s.fixed.seconds, Cost: Amount{big.NewInt(s.fixed.cents)}}
	}
	return out
}

func (b plainBook) book(t *testing.T) Book {
	t.Helper()
	book := Book{Currency: "USD", MinPeriodSeconds: b.min, Mode: AllUnits, DiscountScope: PerSession}
	if b.marginal {
		book.Mode = Marginal
	}
	if b.period {
		book.DiscountScope = PerPeriod
	}
	for _, p := range b.prices {
		price := Price{Resource: p.resource, Model: p.model, PerHour: thousandths(t, p.milli)}
		if p.from != always {
			price.ValidFrom = epoch.Add(time.Duration(p.from) * time.Second)
		}
		book.Prices = append(book.Prices, price)
	}
	for _, tier := range b.tiers {
		book.Discounts = append(book.Discounts, Discount{ThresholdHours: whole(tier.hours), Multiplier: thousandths(t, tier.milli)})
	}
	return book
}

func thousandths(t *testing.T, n int64) Decimal {
	t.Helper()
	return decimal(t, fmt.Sprintf("%d.%03d", n/1000, n%1000))
}

func decimal(t *testing.T, s string) Decimal {
	t.Helper()
	d, err := ParseDecimal(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func amount(t *testing.T, s string) Amount {
	t.Helper()
	a, err := ParseAmount(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// randomBook returns prices of three resources, one of them for a model, none for a fourth.
func randomBook(rng *rand.Rand) plainBook {
	b := plainBook{
		prices: []plainPrice{
			{"nvidia.com/gpu", "", always, rng.Int64N(10_000)},
			{"nvidia.com/gpu", "H100", always, rng.Int64N(10_000)},
			{"amd.com/gpu", "", always, rng.Int64N(10_000)},
			{"nvidia.com/mig-1g.10gb", "A1", always, rng.Int64N(10_000)},
		},
		min: rng.Int64N(3) * 60, marginal: rng.IntN(2) == 0, period: rng.IntN(2) == 0,
	}
	var hours int64
	for range rng.IntN(5) {
		hours += 1 + rng.Int64N(40)
		b.tiers = append(b.tiers, plainTier{hours: hours, milli: rng.Int64N(1001)})
	}
	return b
}

// changing returns the book with prices that change while sessions of randomSessions end, many of
// them at that second. Some resources have no price until the first change.
func (b plainBook) changing(rng *rand.Rand) plainBook {
	var prices []plainPrice
	for _, p := range b.prices {
		if rng.IntN(4) > 0 {
			prices = append(prices, p)
		}
		for from := rng.Int64N(20); from < 40 && rng.IntN(3) > 0; from += 1 + rng.Int64N(10) {
			prices = append(prices, plainPrice{p.resource, p.model, from * 3600, rng.Int64N(10_000)})
		}
	}
	rng.Shuffle(len(prices), func(i, j int) { prices[i], prices[j] = prices[j], prices[i] })
	b.prices = prices
	return b
}

// fixing sets the fixed price of the priced sessions that end until a second.
func (b plainBook) fixing(sessions []plainSession, until int64) []plainSession {
	out, costs := slices.Clone(sessions), b.cents(sessions)
	for i, s := range sessions {
		price, _, ok := b.price(s)
		if ok && s.start+s.seconds < until {
			out[i].fixed = &plainFixed{price: price, seconds: max(s.seconds, b.min), cents: costs[i]}
		}
	}
	return out
}

// randomSessions returns sessions many of which end together, or have exactly a threshold's hours.
func randomSessions(rng *rand.Rand, n int) []plainSession {
	sessions := make([]plainSession, n)
	for i := range sessions {
		s := plainSession{
			id: fmt.Sprintf("s%05d", rng.IntN(100_000)*n+i), tenant: []string{"team-a", "team-b"}[rng.IntN(2)],
			resource: []string{"nvidia.com/gpu", "nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb", "x/unknown"}[rng.IntN(5)],
			model:    []string{"", "A1", "H100"}[rng.IntN(3)],
			start:    rng.Int64N(20) * 3600, seconds: rng.Int64N(40_000), milli: []int64{1000, 4000, 8000, 142, 428}[rng.IntN(5)],
		}
		if rng.IntN(3) == 0 {
			s.seconds = rng.Int64N(20) * 3600
		}
		sessions[i] = s
	}
	return sessions
}
