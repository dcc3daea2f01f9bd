// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/klog/v2"
)

// tokenField begins the token of a TokenReview or TokenRequest.
const tokenField = `"token":"`

// HideTokens keeps the tokens of clients that request metrics out of the process's log. kube-scheduler
// reviews them with a client that prints whole requests, tokens included, from -v=8 on, the level at
// which plugins print scores too. Call it after the process's logger was set (klog.SetLogger).
func HideTokens() {
	sink := klog.Background().GetSink()
	options := []klog.LoggerOption{klog.ContextualLogger(true)}
	if w, ok := sink.(interface{ WriteKlogBuffer(line []byte) }); ok { // for klog.Infof and the like
		options = append(options, klog.WriteKlogBuffer(w.WriteKlogBuffer))
	}
	klog.SetLoggerWithOptions(klog.New(maskingSink{sink, regexp.MustCompile(tokenField + `[^"]*`)}), options...)
}

// maskingSink masks tokens in all log output.
type maskingSink struct {
	klog.LogSink

	token *regexp.Regexp
}

// Init initializes the inner sink with one more caller.
func (s maskingSink) Init(info klog.RuntimeInfo) {
	info.CallDepth++
	s.LogSink.Init(info)
}

// Info prints with tokens masked.
func (s maskingSink) Info(level int, msg string, keysAndValues ...any) {
	s.LogSink.Info(level, msg, s.mask(keysAndValues)...)
}

// Error prints with tokens masked.
func (s maskingSink) Error(err error, msg string, keysAndValues ...any) {
	s.LogSink.Error(err, msg, s.mask(keysAndValues)...)
}

// WithValues keeps the values, masked.
func (s maskingSink) WithValues(keysAndValues ...any) klog.LogSink {
	return maskingSink{s.LogSink.WithValues(s.mask(keysAndValues)...), s.token}
}

// WithName sets the name of the inner sink.
func (s maskingSink) WithName(name string) klog.LogSink {
	return maskingSink{s.LogSink.WithName(name), s.token}
}

// WithCallDepth lets the inner sink find the caller's line.
func (s maskingSink) WithCallDepth(depth int) klog.LogSink {
	if deep, ok := s.LogSink.(interface{ WithCallDepth(depth int) klog.LogSink }); ok {
		return maskingSink{deep.WithCallDepth(depth), s.token}
	}
	return s
}

func (s maskingSink) mask(values []any) []any {
	out := values // the caller's own; usually no value has to change
	for i, value := range values {
		text, ok := value.(string)
		if !ok || !strings.Contains(text, tokenField) {
			continue
		}
		if &out[0] == &values[0] {
			out = slices.Clone(values)
		}
		out[i] = s.token.ReplaceAllString(text, tokenField+"<masked>")
	}
	return out
}
