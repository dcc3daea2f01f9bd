// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
)

type metrics struct {
	decisions  *prometheus.CounterVec
	identity   *prometheus.CounterVec
	ignored    *prometheus.CounterVec
	ambiguous  prometheus.Counter
	doubleBook prometheus.Counter
	lists      prometheus.Counter
	gets       prometheus.Counter
	surveys    prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	vec := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "nvtopo", Subsystem: "agent", Name: name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v)
		}
		return c
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "nvtopo", Subsystem: "agent", Name: name, Help: help})
	}
	m := &metrics{
		decisions: vec("decisions_total", "Answers to kubelet by what came of them.", "result",
			answer.ResultSteered, answer.ResultForeign, answer.ResultConflict, answer.ResultForced, answer.ResultRefused),
		identity: vec("identity_total", "Questions by how the asking container was found.", "source",
			podfinder.SourceGet, podfinder.SourceCheckpoint, podfinder.SourceGuess, podfinder.SourceNone),
		ignored: vec("annotations_ignored_total", "Allocation annotations, or containers of one, that were not used.", "reason",
			podfinder.IgnoredMalformed, podfinder.IgnoredStale, podfinder.IgnoredCount),
		ambiguous:  counter("ambiguous_total", "Questions that several containers could have asked."),
		doubleBook: counter("double_book_total", "Allocations refused because kubelet showed the device held by another pod."),
		lists:      counter("live_lists_total", "Questions for which the pods were listed from the API server."),
		gets:       counter("podresources_gets_total", "PodResources Get calls made to find or check a pod."),
		surveys:    counter("podresources_lists_total", "PodResources List calls made to find a pod among several."),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.decisions, m.identity, m.ignored, m.ambiguous, m.doubleBook, m.lists, m.gets, m.surveys} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}
