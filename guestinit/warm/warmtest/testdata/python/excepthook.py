import sys
sys.excepthook = lambda t, v, tb: print("hook", t, v, tb.tb_frame.f_code.co_name, tb.tb_next)
raise ValueError("seen")
