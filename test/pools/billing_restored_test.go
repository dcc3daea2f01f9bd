// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/invoicing"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/serverclock"
)

// restored checks that a record that was restored without its status is not billed until the end of its
// session is set.
func restored(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	o.account(t, "restored", "100")
	lost := &poolv1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{
		Name: string(uuid.NewUUID()), Namespace: "default", Finalizers: []string{names.FinalizerBilling},
		Annotations: map[string]string{names.AnnotationRecorded: november(2, 0).Format(time.RFC3339)},
	}}
	lost.Spec = poolv1alpha1.UsageRecordSpec{
		Tenant: "restored", Pool: "training", Pod: "p", PodUID: types.UID(lost.Name), Node: "n", Resource: "nvidia.com/gpu", Quantity: "1", Start: metav1.NewTime(november(2, 0)),
	}
	if err := o.Create(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	known := o.held(t, "restored", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	o.owes(t, "restored", "98.00", "2.00", "0.00")
	var account poolv1alpha1.TenantAccount
	o.get(t, &account, "", "restored")
	record := types.NamespacedName{Namespace: lost.Namespace, Name: lost.Name}
	c := meta.FindStatusCondition(account.Status.Conditions, poolv1alpha1.ConditionRecordsHeld)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, record.String()) {
		t.Errorf("condition %+v, want one that names %s", c, record)
	}

	dyn, err := dynamic.NewForConfig(o.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	settle := func(record types.NamespacedName, end time.Time, invoice string) error {
		return ledger.NewReader(dyn).Settle(t.Context(), record, end, invoice, time.Now())
	}
	open := o.waitInvoices(t, "restored", map[string]string{"2026-11": "2.00"})[0].Name
	for name, tc := range map[string]struct {
		record  types.NamespacedName
		end     time.Time
		invoice string
		want    string
	}{
		"no record":            {types.NamespacedName{Namespace: "default", Name: "nobody"}, november(2, 1), "", "no UsageRecord default/nobody"},
		"it has an end":        {types.NamespacedName{Namespace: known.Namespace, Name: known.Name}, november(2, 1), "", "status.end is 2026-11-02T01:00:00Z"},
		"before it began":      {record, november(1, 0), "", "before spec.start"},
		"in the future":        {record, time.Now().Add(time.Hour), "", "in the future"},
		"no invoice":           {record, november(2, 1), "inv-none", "inv-none"},
		"an invoice not final": {record, november(2, 1), open, "want a final one"},
	} {
		if err := settle(tc.record, tc.end, tc.invoice); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tc.want)
		}
	}
	show := transcript.New("settle", "--kubeconfig", o.Kubeconfig())
	show.Hide("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "00000000-0000-0000-0000-000000000000")
	show.Say("A record was restored from a backup without its status.")
	show.Run(t, "pool", "bill", "restored")
	show.Run(t, "pool", "settle", record.String(), "--end", november(2, 3).Format(time.RFC3339))
	show.Compare(t)
	o.owes(t, "restored", "92.00", "8.00", "0.00")
	testkit.Eventually(t, patience, "no record is held", func(ctx context.Context) (bool, string) {
		err := o.Get(ctx, client.ObjectKey{Name: "restored"}, &account)
		return err == nil && meta.IsStatusConditionFalse(account.Status.Conditions, poolv1alpha1.ConditionRecordsHeld), fmt.Sprint(err, account.Status.Conditions)
	})
}

// clockAhead checks that a leader whose clock is months ahead of the API server's closes no month.
func clockAhead(t *testing.T, o *office) {
	t.Helper()
	local := testingclock.NewFakeClock(time.Now().AddDate(0, 2, 0))
	clock := serverclock.New(local)
	config := o.RESTConfig()
	config.Wrap(clock.Wrap)
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: kinds(), Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: false})
	if err != nil {
		t.Fatal(err)
	}
	if err := invoicing.Setup(mgr, invoicing.Options{Grace: grace, Keep: keep, Clock: clock}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	end := time.Now().Truncate(time.Second)
	month := end.UTC().Format("2006-01")
	o.held(t, "ahead", "nvidia.com/gpu", "1", end.Add(-time.Hour), end)
	o.waitInvoices(t, "ahead", map[string]string{month: "2.00"})
	o.held(t, "ahead", "nvidia.com/gpu", "1", end.Add(-time.Hour), end)
	o.waitInvoices(t, "ahead", map[string]string{month: "4.00"})
}
