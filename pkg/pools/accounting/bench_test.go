// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCompute makes the statement of a month of ended and priced sessions from scratch. bench/bills
// measures the cost of an event with a Tally.
func BenchmarkCompute(b *testing.B) {
	for _, sessions := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			books := Books{Account: account("1000"), Prices: prices(), Now: day(11, 20, 0), Grace: 24 * time.Hour}
			for i := range sessions {
				start := day(11, 2, 0).Add(time.Duration(i) * time.Second)
				r := fixed(session(fmt.Sprintf("s%07d", i), "4", start, start.Add(time.Hour)), "2", 3600, "8.00")
				books.Records = append(books.Records, r)
			}
			b.ReportAllocs()
			for b.Loop() {
				s, err := books.Compute()
				if err != nil || len(s.Sessions) != sessions || s.Balance.String() != fmt.Sprintf("%d.00", 1000-8*sessions) {
					b.Fatalf("%d sessions, balance %s, %v", len(s.Sessions), s.Balance, err)
				}
			}
		})
	}
}
