from foredraft.cli.output import Writer


def test_text_is_written_as_utf8_and_nothing_is_added(capfdbinary):
    writer = Writer()
    for piece in ("grü", "", "ße\r\n", "🙂"):
        writer.write(piece, "accepted")
    writer.close()
    assert capfdbinary.readouterr().out == "grüße\r\n🙂".encode()


def test_marks_are_closed_at_the_end(capfdbinary):
    writer = Writer(show_drafts=True, is_colored=False)
    writer.write("a", "plain")
    writer.write("b", "accepted")
    writer.write("c", "accepted")
    writer.close()
    writer.close()
    assert capfdbinary.readouterr().out.decode() == "a⟦bc⟧"
