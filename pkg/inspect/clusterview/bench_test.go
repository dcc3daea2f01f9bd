// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// BenchmarkThousandNodes views 1000 nodes of 8 GPUs with 3000 pods of one or two, and advises
// for each size of group. view-again remembers the last view.
func BenchmarkThousandNodes(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	c := viewtest.New()
	for i := range 1000 {
		name := "n" + strconv.Itoa(i)
		if err := c.AddNode(name, "dgx-h100", "topology.kubernetes.io/rack", "r"+strconv.Itoa(i/16)); err != nil {
			b.Fatal(err)
		}
		at := r.Perm(8)
		for j := range r.IntN(7) {
			c.AddPod(name+"-"+strconv.Itoa(j), name, 1, at[j])
		}
	}
	b.Run("view", func(b *testing.B) {
		for b.Loop() {
			clusterview.Of(&c.Objects, clusterview.Options{})
		}
	})
	b.Run("view-again", func(b *testing.B) { // one pod in sixty changed
		for i := range c.Nodes {
			c.Nodes[i].ResourceVersion, c.Topologies[i].ResourceVersion = "1", "1"
		}
		for i := range c.Pods {
			c.Pods[i].ResourceVersion = "1"
		}
		m := clusterview.NewMemo()
		for n := 1; b.Loop(); n++ {
			for i := n % 60; i < len(c.Pods); i += 60 {
				c.Pods[i].ResourceVersion = strconv.Itoa(n)
			}
			m.Of(&c.Objects, clusterview.Options{})
		}
	})
	v := clusterview.Of(&c.Objects, clusterview.Options{})
	for _, k := range []int{8, 4, 2} {
		b.Run("advise-"+strconv.Itoa(k), func(b *testing.B) {
			for b.Loop() {
				a := v.Advise(clusterview.AdviceOptions{GPUs: k})
				b.ReportMetric(float64(a.After-a.Before), "groups")
				b.ReportMetric(float64(len(a.Moves)), "moves")
			}
		})
	}
}
