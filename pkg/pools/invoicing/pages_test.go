// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// killer ends a process at one of its writes: that one and those after it fail.
type killer struct {
	mu        sync.Mutex
	left      int  // writes until then
	committed bool // the write at which it ends is carried out, and has no answer
}

// write does a write, unless the process has ended.
func (k *killer) write(do func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left--
	switch {
	case k.left > 0:
		return do()
	case k.left == 0 && k.committed:
		if err := do(); err != nil {
			return err
		}
	}
	return errKilled
}

func (k *killer) funcs() *interceptor.Funcs {
	return &interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return k.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return k.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return k.write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return k.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}

// TestPagesKilled: wherever the controller is killed while it closes an invoice of several pages, and
// whatever becomes known before the next one continues, each session is on one page, and the pages add
// up to the cost of the sessions.
func TestPagesKilled(t *testing.T) {
	const sessions = 257 // each a line: two pages
	// The writes are: 2 pages, 257 marks, 2 closes, and the account's status. Marks are alike, so that few of
	// them are tried.
	for _, at := range []int{1, 2, 100, 259, 260, 261, 262} {
		for _, committed := range []bool{false, true} {
			for _, late := range []int{0, 2} {
				t.Run(fmt.Sprintf("at write %d, carried out %t, %d sessions late", at, committed, late), func(t *testing.T) {
					e := newTestEnv(t, append(hours(0, sessions, day(11, 20)), anAccount(1))...)
					k := &killer{left: at, committed: committed}
					e.intercept(k.funcs())
					if _, err := e.reconcile(t); err != nil && !errors.Is(err, errKilled) {
						t.Fatal(err)
					}
					e.intercept(nil)
					e.add(t, hours(1000, late, day(11, 21)))
					e.look(t, 3)
					// Sessions late for November are on December's invoice, and that is closed, too.
					e.clock.SetTime(day(12, 3).AddDate(0, 1, 0))
					e.look(t, 3)
					e.checkBilled(t)
				})
			}
		}
	}
}

// TestPageNames: the pages of an invoice have its name and their number, and the first has the number of
// pages.
func TestPageNames(t *testing.T) {
	e := newTestEnv(t, append(hours(0, 600, day(11, 20)), anAccount(1))...)
	if _, err := e.reconcile(t); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range e.invoices(t) {
		got = append(got, fmt.Sprintf("%s: page %d of %d, %d lines, %s", v.Name, v.Spec.Page, v.Spec.Pages, len(v.Spec.LineItems), v.Spec.Total))
	}
	slices.Sort(got)
	want := []string{
		"inv-20261101-20261201-uid-a-page-2: page 2 of 0, 256 lines, 512.00",
		"inv-20261101-20261201-uid-a-page-3: page 3 of 0, 88 lines, 176.00",
		"inv-20261101-20261201-uid-a: page 1 of 3, 256 lines, 512.00",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var final []string
	for _, event := range e.told() {
		if strings.HasPrefix(event, "Normal "+eventInvoiceFinal) {
			final = append(final, event)
		}
	}
	if len(final) != 3 || !strings.Contains(final[2], " inv-20261101-20261201-uid-a of ") {
		t.Errorf("closed: %q, want the first page last", final)
	}
	e.checkBilled(t)
}
