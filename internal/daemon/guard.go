// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// answerTTL is how long an answer of the API server is cached, and so how long a withdrawn token or
	// right still works: the same time as in kube-scheduler.
	answerTTL = 10 * time.Second
	// reviewTimeout limits the two reviews for one request.
	reviewTimeout = 15 * time.Second
	// maxReviews limits the requests that wait for a review at the same time, and so the memory that a flood
	// of requests can use.
	maxReviews = 32
	// maxPath limits the length of paths that are reviewed, because answers are cached by path.
	maxPath = 256
)

// guard forwards the requests that the API server's authorizer allows.
type guard struct {
	open    []string // paths that need no token
	authn   authenticator.Request
	authz   authorizer.Authorizer
	reviews chan struct{} // one entry for each request under review
	next    http.Handler
}

func newGuard(client kubernetes.Interface, open []string, next http.Handler) (*guard, error) {
	if client == nil {
		return nil, errors.New("there is no client to ask the API server with")
	}
	// As in kube-scheduler, but without a second try: the client itself retries.
	backoff := &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1, Steps: 1}
	tokens, err := webhook.NewFromInterface(client.AuthenticationV1(), nil, *backoff, reviewTimeout, webhook.AuthenticatorMetrics{
		RecordRequestTotal:   func(context.Context, string) {},
		RecordRequestLatency: func(context.Context, string, float64) {},
	})
	if err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: answerTTL, DenyCacheTTL: answerTTL, WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("authorize: %w", err)
	}
	return &guard{
		open:    open,
		authn:   group.NewAuthenticatedGroupAdder(bearertoken.New(cache.New(silent{tokens}, false, answerTTL, answerTTL))),
		authz:   authz,
		reviews: make(chan struct{}, maxReviews),
		next:    next,
	}, nil
}

// silent authenticates without a logger: at -v=8 the client would print the
// TokenReview, which contains the scraper's token.
type silent struct{ authenticator.Token }

func (s silent) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return s.Token.AuthenticateToken(klog.NewContext(ctx, klog.Logger{}), token) // passes on the interface's error
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if slices.Contains(g.open, r.URL.Path) {
		g.next.ServeHTTP(w, r)
		return
	}
	if code, why := g.review(r); code != http.StatusOK {
		// Do not keep connections of clients without rights.
		w.Header().Set("Connection", "close")
		switch code {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, why, code)
		return
	}
	// The handler does not need the token, and must not print it.
	r.Header.Del("Authorization")
	g.next.ServeHTTP(w, r)
}

// review reviews whether the request may be served. If not, it returns the status and text of the
// response.
func (g *guard) review(r *http.Request) (code int, why string) {
	if len(r.URL.Path) > maxPath {
		return http.StatusRequestURITooLong, "the path is too long"
	}
	if r.Header.Get("Authorization") == "" {
		return http.StatusUnauthorized, "Unauthorized"
	}
	select {
	case g.reviews <- struct{}{}:
		defer func() { <-g.reviews }()
	default:
		return http.StatusTooManyRequests, "too many requests are being reviewed"
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	logger := klog.FromContext(ctx)
	who, ok, err := g.authn.AuthenticateRequest(r.WithContext(ctx))
	if err != nil || !ok {
		// A bad token and an API server that does not respond are indistinguishable here.
		logger.V(4).Info("Refused a request", "path", r.URL.Path, "client", r.RemoteAddr, "err", err)
		return http.StatusUnauthorized, "Unauthorized"
	}
	asked := authorizer.AttributesRecord{User: who.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path}
	decision, reason, err := g.authz.Authorize(ctx, asked)
	switch {
	case decision == authorizer.DecisionAllow:
		return http.StatusOK, ""
	case err != nil:
		logger.Error(err, "Cannot find out whether a request is allowed", "path", r.URL.Path)
		return http.StatusInternalServerError, "authorization failed"
	default:
		logger.V(4).Info("Refused a request", "path", r.URL.Path, "user", who.User.GetName(), "reason", reason)
		return http.StatusForbidden, fmt.Sprintf("%s may not %s %s", who.User.GetName(), asked.Verb, asked.Path)
	}
}
