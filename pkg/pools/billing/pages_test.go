// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPageIDs(t *testing.T) {
	id := InvoiceID(teamA(), november)
	for name, tc := range map[string]struct {
		id          string
		wantInvoice string
		wantPage    int
	}{
		"an invoice of one page":         {id, id, 1},
		"its second page":                {PageID(id, 2), id, 2},
		"its last":                       {PageID(id, 1000), id, 1000},
		"more than there can be":         {id + "-page-1001", id + "-page-1001", 1},
		"the first has no other ID":      {id + "-page-1", id + "-page-1", 1},
		"no number":                      {id + "-page-x", id + "-page-x", 1},
		"a number written otherwise":     {id + "-page-02", id + "-page-02", 1},
		"none":                           {"", "", 1},
		"an account that looks like one": {id + "-page-2-page-3", id + "-page-2", 3},
	} {
		t.Run(name, func(t *testing.T) {
			if invoice, page := PageOf(tc.id); invoice != tc.wantInvoice || page != tc.wantPage {
				t.Errorf("page %d of %s, want %d of %s", page, invoice, tc.wantPage, tc.wantInvoice)
			}
		})
	}
}

// FuzzPageOf: PageOf reads the results of PageID.
func FuzzPageOf(f *testing.F) {
	for _, seed := range []string{"inv-1", "inv-1-page-2", "inv-1-page-1000", "-page-2", "a-page-+2", "a-page-2-page-2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		invoice, page := PageOf(id)
		if page < 1 || page > maxPages || PageID(invoice, page) != id {
			t.Errorf("%q: read as page %d of %q, which is %q", id, page, invoice, PageID(invoice, page))
		}
	})
}

// ofModels returns sessions of an hour each, of n models from a number on.
func ofModels(t *testing.T, from, n int) []Session {
	t.Helper()
	out := make([]Session, n)
	for i := range out {
		out[i] = held(t, fmt.Sprintf("s%04d", from+i), "1", 3600)
		out[i].Model = fmt.Sprintf("M%04d", from+i)
	}
	return out
}

// on marks sessions with a page.
func on(sessions []Session, page int) []Session {
	for i := range sessions {
		sessions[i].Invoice = PageID(InvoiceID(teamA(), november), page)
	}
	return sessions
}

func TestPages(t *testing.T) {
	join := func(all ...[]Session) (out []Session) {
		for _, s := range all {
			out = append(out, s...)
		}
		return out
	}
	again := func(s Session) Session { s.ID += "-again"; return s }
	for name, tc := range map[string]struct {
		sessions  []Session
		final     map[int]bool
		wantLines []int // of each page
		wantErr   string
	}{
		"no session":                  {wantLines: []int{0}},
		"as many lines as a page has": {sessions: ofModels(t, 0, 256), wantLines: []int{256}},
		"one more":                    {sessions: ofModels(t, 0, 257), wantLines: []int{256, 1}},
		"three pages":                 {sessions: ofModels(t, 0, 600), wantLines: []int{256, 256, 88}},
		"many sessions of one line":   {sessions: join(ofModels(t, 0, 256), []Session{again(ofModels(t, 0, 1)[0])}), wantLines: []int{256}},
		"what is on page 2 stays there": {
			sessions: join(on(ofModels(t, 0, 3), 2), ofModels(t, 10, 5)), wantLines: []int{5, 3},
		},
		"what has its line on page 2 goes there": {
			sessions: join(on(ofModels(t, 0, 3), 2), ofModels(t, 10, 5), []Session{again(ofModels(t, 1, 1)[0])}), wantLines: []int{5, 3},
		},
		"page 2 is final, and takes no more": {
			sessions: join(on(ofModels(t, 0, 3), 2), ofModels(t, 10, 256), []Session{again(ofModels(t, 1, 1)[0])}), final: map[int]bool{2: true},
			wantLines: []int{256, 3, 1},
		},
		"page 1 is final": {
			sessions: join(on(ofModels(t, 0, 3), 1), on(ofModels(t, 10, 2), 2)), final: map[int]bool{1: true}, wantLines: []int{3, 2},
		},
		"more lines than all pages take": {
			sessions: join(on(ofModels(t, 0, 256), 1000), ofModels(t, 1000, 1)), final: allFinal(999), wantErr: "want at most 1000 of 256 lines",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pages, err := Bill(book(t, requirementBook), teamA(), november, tc.sessions, nil, tc.final, november.End)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for i := range pages {
				p := &pages[i]
				got = append(got, len(p.Lines))
				wantPage, wantPages := 0, 0
				if len(pages) > 1 {
					wantPage = i + 1
				}
				if len(pages) > 1 && i == 0 {
					wantPages = len(pages)
				}
				if p.Number != i+1 || p.ID != PageID(InvoiceID(teamA(), november), i+1) || p.Page != wantPage || p.Pages != wantPages {
					t.Errorf("page %d is %d, %s, page %d of %d", i+1, p.Number, p.ID, p.Page, p.Pages)
				}
			}
			if diff := cmp.Diff(tc.wantLines, got); diff != "" {
				t.Errorf("lines of pages (-want +got):\n%s", diff)
			}
		})
	}
}

func allFinal(n int) map[int]bool {
	out := map[int]bool{}
	for i := range n {
		out[i+1] = true
	}
	return out
}

// TestPagesSum: the pages of an invoice add up to the invoice on one page, cent by cent and session by
// session, whichever sessions are on a page or final already.
func TestPagesSum(t *testing.T) {
	paged := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 33))
		b := randomBook(rng).changing(rng).book(t)
		var sessions []Session
		for _, plain := range randomSessions(rng, 1+rng.IntN(900)) {
			plain.tenant, plain.model = "team-a", fmt.Sprintf("M%03d", rng.IntN(500))
			sessions = append(sessions, plain.session(t))
		}
		whole := invoice(t, b, teamA(), november, sessions)
		first, err := Bill(b, teamA(), november, sessions, nil, nil, november.End)
		if err != nil {
			t.Fatal(err)
		}
		checkPages(t, seed, whole, first, nil)

		// Some were marked with their page, some pages closed, and others became known later.
		final, was := map[int]bool{}, map[string]string{}
		for i := range first[1:] {
			final[i+2] = rng.IntN(2) == 0
		}
		for i := range first {
			for _, c := range first[i].Charges {
				if final[i+1] || rng.IntN(2) == 0 {
					was[c.Session.ID] = first[i].ID
				}
			}
		}
		for i := range sessions {
			sessions[i].Invoice = was[sessions[i].ID]
		}
		for range rng.IntN(300) {
			late := sessions[rng.IntN(len(sessions))]
			late.ID, late.Invoice, late.Model = fmt.Sprintf("late%d", len(sessions)), "", fmt.Sprintf("M%03d", rng.IntN(600))
			sessions = append(sessions, late)
		}
		unmarked := make([]Session, len(sessions))
		for i, s := range sessions {
			s.Invoice = ""
			unmarked[i] = s
		}
		whole = invoice(t, b, teamA(), november, unmarked)
		second, err := Bill(b, teamA(), november, sessions, nil, final, november.End)
		if err != nil {
			t.Fatal(err)
		}
		checkPages(t, seed, whole, second, was)
		for i := range first {
			if final[i+1] && len(first[i].Charges) != len(second[i].Charges) {
				t.Fatalf("seed %d: page %d is final with %d sessions, and has %d", seed, i+1, len(first[i].Charges), len(second[i].Charges))
			}
		}
		if len(second) > 1 {
			paged++
		}
	}
	if paged < 50 {
		t.Errorf("%d of 200 invoices had pages, want 50 at least: the test shows nothing", paged)
	}
}

// checkPages compares pages with the invoice on one page. was is the earlier page of sessions.
func checkPages(t *testing.T, seed uint64, whole Invoice, pages []Page, was map[string]string) {
	t.Helper()
	var sum Amount
	seen, sessions := map[string]bool{}, 0
	for i := range pages {
		p := &pages[i]
		if err := p.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(p.Lines) > MaxLines {
			t.Fatalf("seed %d: page %d has %d lines", seed, i+1, len(p.Lines))
		}
		sum = sum.Plus(p.Total)
		for _, c := range p.Charges {
			if seen[c.Session.ID] || c.Session.Invoice != p.ID || was[c.Session.ID] != "" && was[c.Session.ID] != p.ID {
				t.Fatalf("seed %d: session %s of %s is on page %d, or twice; it was on %s", seed, c.Session.ID, c.Session.Invoice, i+1, was[c.Session.ID])
			}
			seen[c.Session.ID] = true
		}
	}
	for _, l := range whole.Lines {
		sessions += l.Sessions
	}
	if !sum.Equal(whole.Total) || len(seen) != sessions {
		t.Fatalf("seed %d: %d pages have %d sessions for %s, want %d for %s", seed, len(pages), len(seen), sum, sessions, whole.Total)
	}
}
