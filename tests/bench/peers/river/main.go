// River as its own benchmark sets it up. See ../README.md for the commands.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type worker struct{ river.WorkerDefaults[nothing] }

func (worker) Work(context.Context, *river.Job[nothing]) error { return nil }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func prepare(ctx context.Context, pool *pgxpool.Pool, count int) {
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)
	client, err := river.NewClient(driver, &river.Config{})
	must(err)
	for count > 0 {
		jobs := make([]river.InsertManyParams, min(count, 5000))
		for i := range jobs {
			jobs[i].Args = nothing{}
		}
		_, err = client.InsertManyFast(ctx, jobs)
		must(err)
		count -= len(jobs)
	}
	_, err = pool.Exec(ctx, "VACUUM ANALYZE river_job")
	must(err)
}

func work(ctx context.Context, pool *pgxpool.Pool) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers:           workers,
	})
	must(err)
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	if !input.Scan() {
		return
	}
	must(client.Start(ctx))
	for input.Scan() {
	}
	must(client.StopAndCancel(ctx))
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Args[2])
	must(err)
	defer pool.Close()
	switch os.Args[1] {
	case "prepare":
		count, err := strconv.Atoi(os.Args[3])
		must(err)
		prepare(ctx, pool, count)
	case "work":
		work(ctx, pool)
	}
}
