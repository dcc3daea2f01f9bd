// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxLines is the most lines of a page, and maxPages the most pages of an invoice.
const (
	MaxLines = 256
	maxPages = 1000
)

// Page is a page of an invoice, with the charges and the subtotals that it adds up.
type Page struct {
	Invoice

	Number  int // from 1 on
	Charges []Charge
	Sums    []Subtotal
}

// pageInfix is between the ID of an invoice and the number of a page beyond the first.
const pageInfix = "-page-"

// PageID returns the ID of a page. The first page has the invoice's ID.
func PageID(invoice string, page int) string {
	if page <= 1 {
		return invoice
	}
	return invoice + pageInfix + strconv.Itoa(page)
}

// PageOf returns the invoice and the page number of a page's ID.
func PageOf(id string) (invoice string, page int) {
	at := strings.LastIndex(id, pageInfix)
	if at < 0 {
		return id, 1
	}
	n, err := strconv.Atoi(id[at+len(pageInfix):])
	if err != nil || n < 2 || n > maxPages || PageID(id[:at], n) != id {
		return id, 1
	}
	return id[:at], n
}

// Bill computes an account's invoice for a period from its sessions, in pages of at most MaxLines lines.
// sums are of further sessions on it that were rated before. A session that is marked with a page stays
// there. The others go, line by line, to the first page with room that is not final; final has the
// numbers of the final pages. Discounts of the scope PerPeriod are computed over all pages.
func Bill(book Book, a Account, p Period, sessions []Session, sums []Subtotal, final map[int]bool, now time.Time) ([]Page, error) {
	if err := billable(a, p); err != nil {
		return nil, err
	}
	charges, err := Rate(book, sessions)
	if err != nil {
		return nil, err
	}
	if len(sums) > 0 && book.DiscountScope != PerSession {
		return nil, fmt.Errorf("discountScope: %s: its sessions cannot be added up before", book.DiscountScope)
	}
	id := InvoiceID(a, p)
	l := layout{id: id, final: final, lines: []map[lineKey]bool{{}}}
	on := l.place(itemsOf(charges, sums))
	if len(l.lines) > maxPages {
		return nil, fmt.Errorf("its lines take %d pages, want at most %d of %d lines", len(l.lines), maxPages, MaxLines)
	}
	pages := make([]Page, len(l.lines))
	for i := range charges {
		page := &pages[on[i]-1]
		charges[i].Session.Invoice = PageID(id, on[i])
		page.Charges = append(page.Charges, charges[i])
	}
	for i := range sums {
		page := &pages[on[len(charges)+i]-1]
		page.Sums = append(page.Sums, sums[i])
	}
	for i := range pages {
		page := &pages[i]
		page.Number, page.Invoice = i+1, invoiceOf(book, a, p, page.Charges, page.Sums, now)
		page.ID = PageID(id, page.Number)
		if len(pages) > 1 {
			page.Page = page.Number
		}
	}
	if len(pages) > 1 {
		pages[0].Pages = len(pages)
	}
	return pages, nil
}

// item is a charge or a subtotal to be placed on a page.
type item struct {
	invoice string // mark of its sessions
	line    Line   // without sessions
	key     lineKey
}

// itemsOf returns the charges and then the sums.
func itemsOf(charges []Charge, sums []Subtotal) []item {
	out := make([]item, 0, len(charges)+len(sums))
	for i := range charges {
		out = append(out, item{charges[i].Session.Invoice, emptyLine(&charges[i]), charges[i].line()})
	}
	for i := range sums {
		out = append(out, item{sums[i].Invoice, sums[i].Line.empty(), sums[i].Line.key()})
	}
	return out
}

// layout is the distribution of lines over the pages of an invoice.
type layout struct {
	id    string
	final map[int]bool
	lines []map[lineKey]bool // by page
}

// place returns the page of each item: the one that its sessions are marked with, or else the page of
// its line.
func (l *layout) place(items []item) []int {
	on := make([]int, len(items))
	free := map[lineKey][]int{}
	for i := range items {
		if invoice, page := PageOf(items[i].invoice); invoice == l.id {
			on[i] = page
			l.put(page, items[i].key)
			continue
		}
		free[items[i].key] = append(free[items[i].key], i)
	}
	groups := slices.SortedFunc(maps.Values(free), func(a, b []int) int {
		return compareLines(items[a[0]].line, items[b[0]].line)
	})
	room := 1 // the pages before it are full
	for _, group := range groups {
		key := items[group[0]].key
		page := l.with(key)
		if page == 0 {
			for l.full(room) {
				room++
			}
			page = room
			l.put(page, key)
		}
		for _, i := range group {
			on[i] = page
		}
	}
	return on
}

// put adds a line to a page.
func (l *layout) put(page int, key lineKey) {
	for len(l.lines) < page {
		l.lines = append(l.lines, map[lineKey]bool{})
	}
	l.lines[page-1][key] = true
}

// with returns the first page that has a line and takes more sessions; 0 if there is none.
func (l *layout) with(key lineKey) int {
	for i := range l.lines {
		if l.lines[i][key] && !l.final[i+1] {
			return i + 1
		}
	}
	return 0
}

// full reports whether a page takes no more lines.
func (l *layout) full(page int) bool {
	return l.final[page] || page <= len(l.lines) && len(l.lines[page-1]) >= MaxLines
}
