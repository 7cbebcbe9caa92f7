package main

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"hanse.test/clients/check"
)

func (w *world) checkElection(suite *check.Suite) {
	suite.Run("a second candidate leads when the first one resigns", func(t *check.T) { w.takeOver(t, "resigned", true) })
	suite.Run("a second candidate leads when the first one is silent", func(t *check.T) { w.takeOver(t, "silent", false) })
}

// takeOver has two candidates; the first one leads, and stops with or without giving the lease back.
func (w *world) takeOver(t *check.T, lease string, resign bool) {
	leading := make(chan string, 10)
	var group sync.WaitGroup
	defer group.Wait()
	stand := func(name string) context.CancelFunc {
		ctx, stop := background(t)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: lease, Namespace: w.namespace},
				Client: w.client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name}},
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: resign,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { leading <- name; <-ctx.Done() },
				OnStoppedLeading: func() {},
			},
		})
		t.Must(err, "stand")
		group.Go(func() { elector.Run(ctx) })
		return stop
	}
	stopFirst := stand("first")
	t.Want(check.Receive(t, leading, "a leader") == "first", "the first to lead")
	stopSecond := stand("second")
	defer stopSecond()
	stopFirst()
	t.Want(check.Receive(t, leading, "a leader") == "second", "the second to lead")
	// The callback runs beside the election; what it says is true on the server by now.
	found, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), lease, metav1.GetOptions{})
	t.Must(err, "get the lease")
	t.Want(*found.Spec.HolderIdentity == "second" && *found.Spec.LeaseTransitions >= 1, "the lease in its name, not %v", found.Spec)
}
